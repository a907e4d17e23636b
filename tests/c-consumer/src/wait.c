/* Calls that may pend, made below DISPATCH_LEVEL, and closes that are waited for together. */
#include "consumer.h"

VOID WaiterPrepare(WAITER *Waiter)
{
    KeInitializeEvent(&Waiter->Event, NotificationEvent, FALSE);
    Waiter->Status = STATUS_PENDING;
    Waiter->Object = NULL;
}

VOID WaiterRequestDone(PVOID Context, NTSTATUS Status)
{
    WAITER *waiter = Context;
    waiter->Status = Status;
    KeSetEvent(&waiter->Event, 0, FALSE);
}

VOID WaiterCreateDone(PVOID Context, NTSTATUS Status, NDK_OBJECT_HEADER *Object)
{
    WAITER *waiter = Context;
    waiter->Status = Status;
    waiter->Object = Object;
    KeSetEvent(&waiter->Event, 0, FALSE);
}

/*
 * The outcome of a call that was made with this waiter. `Object` points at where a create is to put the object: it
 * is filled by the call if it succeeds inline, and from the completion otherwise.
 */
NTSTATUS WaiterResult(WAITER *Waiter, NTSTATUS Status, PVOID Object)
{
    if (Status != STATUS_PENDING) {
        return Status;
    }
    KeWaitForSingleObject(&Waiter->Event, Executive, KernelMode, FALSE, NULL);
    if (Object != NULL) {
        *(NDK_OBJECT_HEADER **)Object = NT_SUCCESS(Waiter->Status) ? Waiter->Object : NULL;
    }
    return Waiter->Status;
}

VOID CloserPrepare(CLOSER *Closer)
{
    /* One for the caller, so that the event is not set before all closes have been started. */
    Closer->Pending = 1;
    KeInitializeEvent(&Closer->Event, NotificationEvent, FALSE);
}

static VOID CloseDone(PVOID Context)
{
    CLOSER *closer = Context;
    if (InterlockedDecrement(&closer->Pending) == 0) {
        KeSetEvent(&closer->Event, 0, FALSE);
    }
}

VOID CloserClose(CLOSER *Closer, PVOID Object, NDK_FN_CLOSE_OBJECT Close)
{
    InterlockedIncrement(&Closer->Pending);
    if (Close(Object, CloseDone, Closer) != STATUS_PENDING) {
        CloseDone(Closer);
    }
}

VOID CloserWait(CLOSER *Closer)
{
    CloseDone(Closer);
    KeWaitForSingleObject(&Closer->Event, Executive, KernelMode, FALSE, NULL);
}
