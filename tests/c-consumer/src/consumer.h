/*
 * A kernel consumer of NDK that works as a storage initiator, and the target that it is connected to, both in this driver: one on
 * each of two adapters. The initiator keeps a fixed number of requests in flight. For each it maps a buffer, registers
 * it by a fast registration and sends a command that names token and address; the target reads or writes the buffer and
 * answers. Both sides check every byte.
 */
#pragma once

/* The kit's own order: ntddk.h before everything, and what uses addresses behind wsk.h. */
#include <ntddk.h>

#include <wsk.h>

#include <ip2string.h>
#include <ndkpi.h>
#include <netioapi.h>
#include <wskndk.h>

#define TAG 'CkdN'
#define SLOTS 32u
#define LEAST_BYTES 0x1000u
#define MOST_BYTES 0x100000u
/* A buffer may begin anywhere in its first page. */
#define BUFFER_BYTES (MOST_BYTES + PAGE_SIZE)
#define BUFFER_PAGES (BUFFER_BYTES / PAGE_SIZE)
#define MESSAGE_BYTES 64u

/* What goes over the wire, in both directions. */
typedef enum _COMMAND { CommandWrite = 1, CommandRead = 2, CommandAnswer = 3 } COMMAND;

typedef struct _MESSAGE {
    ULONG Command;
    ULONG Slot;
    ULONG Length;
    ULONG Token;
    ULONG64 Address;
    ULONG64 Seed;
    ULONG64 Checksum;
    NTSTATUS Status;
    /* The target leaves the invalidation of the token to the initiator. */
    ULONG KeepToken;
    ULONG64 Reserved[2];
} MESSAGE;
C_ASSERT(sizeof(MESSAGE) == MESSAGE_BYTES);

/* The kinds of work requests, for the counts. */
typedef enum _KIND {
    KindReceive,
    KindSend,
    KindSendAndInvalidate,
    KindFastRegister,
    KindInvalidate,
    KindRead,
    KindWrite,
    Kinds
} KIND;

typedef struct _KIND_TALLY {
    LONG64 Posted;
    LONG64 Refused;
    LONG64 Completed;
    /* Succeeded without a result, as was asked. */
    LONG64 Silent;
    /* Of the completed ones: with a failure. */
    LONG64 Failed;
} KIND_TALLY;

/* The patterns of traffic. */
typedef enum _PATTERN {
    /* Requests of a storage initiator. */
    PatternStorage,
    /* Writes of no bytes, a new one for each that is done, posted by the loop in the notification that takes the results. */
    PatternWrites,
    /* Messages, posted by such a loop in the DPC of a timer of this driver; the queues are never armed. */
    PatternTimer,
    /* Writes of no bytes, one at a time, by a thread that stays at DISPATCH_LEVEL for many of them and polls for each result. */
    PatternPolled
} PATTERN;

typedef enum _STATE { StateStarting, StateRunning, StateEnding, StateDone } STATE;

/* Written into the driver's registry key as it goes. `tests/kernel-host/tests/c_consumer/tally.rs` reads it. */
typedef struct _TALLY {
    ULONG State;
    NTSTATUS Status;
    KIND_TALLY Kind[Kinds];
    LONG64 Requests;
    LONG64 InitiatorBytes;
    LONG64 TargetBytes;
    /* Sums of unsigned numbers, in the type that can be added to atomically. */
    LONG64 InitiatorChecksum;
    LONG64 TargetChecksum;
    LONG64 Mismatches;
    /* Results of requests that were not posted, or twice. */
    LONG64 UnknownResults;
    LONG64 Notifications;
    LONG64 NotificationsAtDispatch;
    LONG64 MappingsPended;
    /* Most results that were taken before a queue was found empty. */
    LONG64 Longest;
} TALLY;

struct _ENDPOINT;
struct _SLOT;

/* One work request. Its address is the context that the provider gives back. */
typedef struct _REQUEST {
    struct _SLOT *Slot;
    VOID (*Done)(struct _SLOT *Slot, const NDK_RESULT_EX *Result);
    LONG Posted;
    KIND Kind;
    BOOLEAN Silent;
} REQUEST;

/* One request of the initiator, or one place of the target. */
typedef struct _SLOT {
    struct _ENDPOINT *Endpoint;
    PIO_WORKITEM WorkItem;
    ULONG Index;

    REQUEST Receive;
    REQUEST Send;
    REQUEST Transfer;
    REQUEST FastRegister;
    REQUEST Invalidate;

    MESSAGE Incoming;
    MESSAGE Outgoing;

    PUCHAR Buffer;
    ULONG Offset;
    PMDL Mdl;
    NDK_LOGICAL_ADDRESS_MAPPING *Mapping;
    ULONG MappingBytes;
    ULONG FirstByteOffset;
    BOOLEAN Mapped;
    NDK_MR *Region;
    /* Results that must come before the slot goes on. */
    LONG Waiting;
} SLOT;

typedef struct _NOTIFIER {
    struct _ENDPOINT *Endpoint;
    NDK_CQ *Queue;
} NOTIFIER;

/* One end of the connection, with everything made from its adapter. */
typedef struct _ENDPOINT {
    TALLY *Tally;
    PCSTR Name;
    NET_IFINDEX Interface;
    SOCKADDR_INET Address;
    NDK_ADAPTER *Adapter;
    NDK_ADAPTER_INFO Info;
    NDK_PD *Domain;
    NOTIFIER Initiated;
    NOTIFIER Received;
    NDK_QP *Pair;
    NDK_CONNECTOR *Connector;
    NDK_LISTENER *Listener;
    UINT32 PrivilegedToken;
    /* Microseconds that results may wait for their notification. */
    ULONG Moderation;

    /* Held by every request that will have a result, and by queued work. Rundown ends the traffic. */
    EX_RUNDOWN_REF Busy;
    /* Held by a notification while it uses its queue: the last result in it may be the one that allows the queue to be closed. */
    EX_RUNDOWN_REF Polling;
    KSPIN_LOCK InitiatorLock;
    KSPIN_LOCK ReceiveLock;
    KEVENT Connected;
    KEVENT Disconnected;
    NTSTATUS ConnectStatus;
    /* What a slot does at PASSIVE_LEVEL. */
    VOID (*Work)(SLOT *Slot);

    /* Messages in memory: SLOTS that arrive, SLOTS that leave. */
    MESSAGE *Messages;
    NDK_LOGICAL_ADDRESS_MAPPING *MessageMapping;
    ULONG MessageOffset;
    NDK_MR *MessageRegion;

    /* The target's own buffers are one registered region. */
    PUCHAR Buffers;
    NDK_MR *BufferRegion;

    SLOT Slots[SLOTS];
} ENDPOINT;

typedef struct _CONSUMER {
    PDRIVER_OBJECT Driver;
    HANDLE Key;
    PVOID Thread;
    KEVENT Stop;
    KEVENT Idle;
    ULONG Pattern;
    LONG64 Wanted;
    LONG64 Started;
    /* Two for a request: one of the initiator, one of the target, whose receive is posted again last. */
    LONG64 InFlight;
    /* Written before the locks of the endpoints are taken, and read under them. */
    BOOLEAN Stopping;
    BOOLEAN WskRegistered;
    BOOLEAN WskCaptured;
    WSK_REGISTRATION Registration;
    WSK_PROVIDER_NPI Provider;
    WSK_PROVIDER_NDK_DISPATCH Ndk;
    TALLY Tally;
    ENDPOINT Initiator;
    ENDPOINT Target;
} CONSUMER;

extern CONSUMER Consumer;

/* wsk.c */
NTSTATUS WskStart(VOID);
VOID WskStop(VOID);
NTSTATUS AdapterOpen(ENDPOINT *Endpoint, NDK_VERSION Version);
VOID AdapterClose(ENDPOINT *Endpoint);

/* wait.c: calls that may pend, made below DISPATCH_LEVEL, and closes that are waited for together. */
typedef struct _WAITER {
    KEVENT Event;
    NTSTATUS Status;
    NDK_OBJECT_HEADER *Object;
} WAITER;

VOID WaiterPrepare(WAITER *Waiter);
NTSTATUS WaiterResult(WAITER *Waiter, NTSTATUS Status, PVOID Object);
VOID WaiterRequestDone(PVOID Context, NTSTATUS Status);
VOID WaiterCreateDone(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object);

typedef struct _CLOSER {
    LONG Pending;
    KEVENT Event;
} CLOSER;

VOID CloserPrepare(CLOSER *Closer);
VOID CloserClose(CLOSER *Closer, PVOID Object, NDK_FN_CLOSE_OBJECT Close);
VOID CloserWait(CLOSER *Closer);

/* endpoint.c */
VOID EndpointPrepare(ENDPOINT *Endpoint, PCSTR Name);
NTSTATUS EndpointCreate(ENDPOINT *Endpoint, BOOLEAN OneQueue);
VOID EndpointBarrier(ENDPOINT *Endpoint);
VOID EndpointClose(ENDPOINT *Endpoint);
VOID EndpointDrain(ENDPOINT *Endpoint);
BOOLEAN RequestBegin(ENDPOINT *Endpoint, REQUEST *Request, KIND Kind, BOOLEAN Silent);
VOID RequestRefused(ENDPOINT *Endpoint, REQUEST *Request);
VOID RequestSettle(ENDPOINT *Endpoint, REQUEST *Request);
NTSTATUS PostReceive(SLOT *Slot);
NTSTATUS PostMessage(SLOT *Slot, KIND Kind, UINT32 Token);
VOID WorkQueue(SLOT *Slot);

/* memory.c */
PVOID MemoryAllocate(SIZE_T Bytes);
VOID MemoryFree(PVOID Memory);
PMDL MdlChain(PVOID Address, ULONG Bytes, ULONG Pieces);
VOID MdlChainFree(PMDL Mdl);
NTSTATUS MessagesCreate(ENDPOINT *Endpoint, BOOLEAN Privileged);
VOID MessageSge(ENDPOINT *Endpoint, ULONG Index, NDK_SGE *Sge);
VOID MemoryClose(ENDPOINT *Endpoint, CLOSER *Closer);
VOID MemoryRelease(ENDPOINT *Endpoint);

/* pattern.c */
ULONG64 PatternFill(PUCHAR Memory, ULONG Length, ULONG64 Seed);
ULONG64 PatternChecksum(const UCHAR *Memory, ULONG Length, ULONG64 Seed, BOOLEAN *Right);
ULONG64 Random(ULONG64 *State);

/* driver.c */
VOID Failed(NTSTATUS Status);
VOID Over(VOID);

/* connect.c */
NTSTATUS Connect(ENDPOINT *Initiator, ENDPOINT *Target);
VOID DisconnectGracefully(ENDPOINT *Initiator, ENDPOINT *Target);

/* initiator.c, target.c */
NTSTATUS InitiatorCreate(ENDPOINT *Endpoint);
VOID InitiatorStart(ENDPOINT *Endpoint);
NTSTATUS TargetCreate(ENDPOINT *Endpoint);

/* drain.c */
NTSTATUS DrainPrepare(ENDPOINT *Initiator, ENDPOINT *Target);
VOID DrainStart(ENDPOINT *Initiator);
VOID DrainStop(VOID);

/* parameters.c */
NTSTATUS ParametersOpen(PUNICODE_STRING RegistryPath);
NTSTATUS ParametersRead(VOID);
VOID ParametersWriteTally(VOID);
