/* What the commands of the program share: its two ends, and how an expectation fails. */
#pragma once

#include "ndspi.h"

/* Only the DLL exports anything. */
#ifdef PROGRAM_IS_LIBRARY
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED
#endif

#define BUFFER_LENGTH (256 * 1024)
#define DEPTH 64

/* What was found instead of what was expected. */
extern HRESULT found;

/* Lines of output are put together piece by piece. */
void put(const char *text);
void put_number(UINT64 number);
void end_line(void);
void say(const char *text);

#define EXPECT(condition)                                                                                                   \
    do {                                                                                                                    \
        if (!(condition)) {                                                                                                 \
            return not_expected(__FILE__, __LINE__);                                                                        \
        }                                                                                                                   \
    } while (0)
#define STATUS_IS(call, status) EXPECT((found = (call)) == (status))
#define PASSES(call)                                                                                                        \
    do {                                                                                                                    \
        int line = (call);                                                                                                  \
        if (line != 0) {                                                                                                    \
            return line;                                                                                                    \
        }                                                                                                                   \
    } while (0)
/* Ends an overlapped call: waits if it pends. */
#define FINISH(object, call, overlapped)                                                                                    \
    ((found = (call)) == ND_PENDING ? (object)->lpVtbl->GetOverlappedResult((object), (overlapped), TRUE) : found)

struct end {
    IND2Adapter *adapter;
    HANDLE file;
    IND2CompletionQueue *queue;
    IND2QueuePair *pair;
    IND2MemoryRegion *region;
    IND2Connector *connector;
    OVERLAPPED overlapped;
    OVERLAPPED notify;
    unsigned char *buffer;
};

struct machine {
    IND2Provider *provider;
    SOCKET_ADDRESS_LIST *addresses;
    struct end active;
    struct end passive;
};

typedef HRESULT(STDMETHODCALLTYPE *get_class_object)(const CLSID *, const IID *, void **);

/* Runs a command with a provider: 0, or a line at which something was not as it should be. */
EXPORTED int run_program(get_class_object provider, const char *name);

/* What a DLL does without a driver; the result as that of a command. */
int probe(const WCHAR *path);

int not_expected(const char *file, int line);

const struct sockaddr *address_of(struct machine *machine, int index);
ULONG length_of(struct machine *machine, int index);
int make_pair(struct end *end);
void drop_pair(struct end *end);
int listen_at(struct machine *machine, IND2Listener **listener, struct sockaddr_storage *at, ULONG *length);
int connect_ends(struct machine *machine, IND2Listener *listener, const struct sockaddr_storage *at, ULONG length);
int disconnect(struct machine *machine);
int one_result(struct end *end, ND2_RESULT *result);
int succeeds(struct end *end, ND2_REQUEST_TYPE type);
ND2_SGE piece(struct end *end, ULONG offset, ULONG length);

/* The commands. */
int list(struct machine *machine);
int pingpong(struct machine *machine);
int write_pingpong(struct machine *machine);
int reads(struct machine *machine);
int writes(struct machine *machine);
int sends(struct machine *machine);
int shared(struct machine *machine);
int windows(struct machine *machine);
int connections(struct machine *machine);
int errors(struct machine *machine);
int connection_errors(struct machine *machine);
int version1(get_class_object provider, struct machine *machine);
int verbs(get_class_object provider);
int streams(get_class_object provider, struct machine *machine);
