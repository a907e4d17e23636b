//! Callbacks on their way from the provider to the consumer: the provider is given a function of the layer and a number as
//! context; the number finds the consumer's own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ndkpi_sys::ndkpi::NDK_OBJECT_HEADER;

use super::super::object_check::NdkObjectKind;
use super::object::{self, Family, NdkObject};
use super::refusals::{self, Cause};
use super::trace;
use crate::call_image;
use crate::callback::{enter_consumer_callback, host_function};
use crate::callout::{Context, ContextKind};
use crate::irql::IrqlRange;
use crate::ndis::rule::{Group, broken};
use crate::status;

/// What a callback is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Request,
    Create(NdkObjectKind),
    Close,
    QueueNotification,
    SharedReceiveNotification,
    ConnectEvent,
    DisconnectEvent,
    DisconnectEventEx,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::Request => "NDK_FN_REQUEST_COMPLETION",
            Self::Create(_) => "NDK_FN_CREATE_COMPLETION",
            Self::Close => "NDK_FN_CLOSE_COMPLETION",
            Self::QueueNotification => "NDK_FN_CQ_NOTIFICATION_CALLBACK",
            Self::SharedReceiveNotification => "NDK_FN_SRQ_NOTIFICATION_CALLBACK",
            Self::ConnectEvent => "NDK_FN_CONNECT_EVENT_CALLBACK",
            Self::DisconnectEvent => "NDK_FN_DISCONNECT_EVENT_CALLBACK",
            Self::DisconnectEventEx => "NDK_FN_DISCONNECT_EVENT_CALLBACK_EX",
        }
    }

    /// Its first argument behind the context is a status.
    fn has_status(self) -> bool {
        matches!(self, Self::Request | Self::Create(_) | Self::QueueNotification | Self::SharedReceiveNotification)
    }

    /// A completion comes once, an event as often as it happens.
    fn is_completion(self) -> bool {
        matches!(self, Self::Request | Self::Create(_) | Self::Close)
    }
}

/// One callback that the consumer gave.
#[derive(Clone)]
pub(super) struct Callback {
    pub purpose: Purpose,
    /// The function that it was given to.
    pub given_to: &'static str,
    pub function: usize,
    pub context: u64,
    pub family: Arc<Family>,
    /// The object of the callback, where that is known: the one that is closed or that has the events.
    pub object: Arc<OnceLock<Arc<NdkObject>>>,
    /// The object that the call was made on.
    pub of: Arc<NdkObject>,
    /// What else the call was given that a made object needs.
    pub needs: Vec<Arc<NdkObject>>,
    /// The number of the call in the trace.
    pub call: u64,
    /// Where in the consumer the call was made.
    pub given_at: Vec<u64>,
    /// The consumer's structure that the call fills with a mapping.
    pub mapping: Option<u64>,
    /// Why the provider failed the call, once it has.
    pub cause: Option<Cause>,
}

/// Numbers begin outside of every range of addresses and small counts.
const FIRST_NUMBER: u64 = 0x4E44_4B00_0000_0000;

#[derive(Default)]
struct CallbackTable {
    callbacks: HashMap<u64, Callback>,
    given: u64,
}

static TABLE: Mutex<Option<CallbackTable>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<CallbackTable>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Remembers a callback and gives its number.
pub(super) fn remember(callback: Callback) -> u64 {
    let mut table = table();
    let table = table.get_or_insert_default();
    table.given += 1;
    let number = FIRST_NUMBER + 16 * table.given;
    table.callbacks.insert(number, callback);
    number
}

/// Removes a callback whose call did not pend; false when it has been called.
pub(super) fn withdraw(number: u64) -> bool {
    table().get_or_insert_default().callbacks.remove(&number).is_some()
}

/// The function to which a completion was given that has not come.
pub(super) fn first_outstanding(family: &Arc<Family>) -> Option<&'static str> {
    let table = table();
    let mut callbacks = table.as_ref()?.callbacks.values();
    let found = callbacks.find(|callback| callback.purpose.is_completion() && Arc::ptr_eq(&callback.family, family));
    found.map(|callback| callback.given_to)
}

/// Completions that have not come: the object of each, and the function that they were given to.
pub(super) fn outstanding() -> Vec<(Arc<NdkObject>, &'static str)> {
    let Ok(table) = TABLE.try_lock() else { return Vec::new() };
    let callbacks = table.iter().flat_map(|table| table.callbacks.iter());
    let mut found: Vec<(u64, &Callback)> = callbacks
        .filter(|(_, callback)| callback.purpose.is_completion())
        .map(|(number, callback)| (*number, callback))
        .collect();
    found.sort_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, callback)| (Arc::clone(&callback.of), callback.given_to)).collect()
}

/// Drops what is left of an adapter that is closed.
pub(super) fn forget(family: &Arc<Family>) {
    table().get_or_insert_default().callbacks.retain(|_, callback| !Arc::ptr_eq(&callback.family, family));
}

/// The function that a provider is given for a purpose.
pub(super) fn stub(purpose: Purpose) -> usize {
    let (address, arguments) = match purpose {
        Purpose::Request => (request_done as *const (), 2),
        Purpose::Create(_) => (create_done as *const (), 3),
        Purpose::Close => (close_done as *const (), 1),
        Purpose::QueueNotification => (queue_notification as *const (), 2),
        Purpose::SharedReceiveNotification => (shared_receive_notification as *const (), 2),
        Purpose::ConnectEvent => (connect_event as *const (), 2),
        Purpose::DisconnectEvent => (disconnect_event as *const (), 1),
        Purpose::DisconnectEventEx => (disconnect_event_ex as *const (), 2),
    };
    host_function(address.cast(), arguments) as usize
}

/// The callback of a number, with the checks that all have in common.
fn begin_callback(number: u64, expected: fn(Purpose) -> bool, name: &'static str) -> Callback {
    enter_consumer_callback(name, IrqlRange::UP_TO_DISPATCH);
    let mut table = table();
    let callbacks = &mut table.get_or_insert_default().callbacks;
    let found = callbacks.get(&number).cloned();
    let Some(callback) = found.filter(|callback| expected(callback.purpose)) else {
        drop(table);
        let rule = format!("{name} is called with a context that it was not given, or a second time");
        broken(Group::Ndk, number as usize, rule);
    };
    if callback.purpose.is_completion() {
        callbacks.remove(&number);
    }
    drop(table);
    if let Some(object) = callback.object.get() {
        if object.is_closed() {
            let rule = format!("{name} is called after the close of its object was completed");
            broken(Group::Ndk, number as usize, rule);
        }
        object::check_unless_closing(object);
    }
    callback
}

/// Calls the consumer.
unsafe fn call_consumer(callback: &Callback, arguments: &[u64]) {
    let name = Context::new(ContextKind::ConsumerCallback, callback.purpose.name());
    let function = callback.function;
    if trace::is_on() {
        trace_callback(callback, arguments);
    }
    let subject = callback.object.get().unwrap_or(&callback.of);
    subject.telling.fetch_add(1, Ordering::SeqCst);
    let status = callback.purpose.has_status().then(|| arguments.first().copied().unwrap_or(0) as i32);
    RUNNING.with_borrow_mut(|running| running.push((callback.clone(), status)));
    // SAFETY: the consumer gave this function for this purpose; the arguments are those of its type.
    unsafe {
        match *arguments {
            [] => call_image!(name, function => (); callback.context),
            [first] => call_image!(name, function => (); callback.context, first),
            [first, second, ..] => call_image!(name, function => (); callback.context, first, second),
        }
    }
    RUNNING.with_borrow_mut(Vec::pop);
    subject.telling.fetch_sub(1, Ordering::SeqCst);
}

thread_local! {
    /// The callbacks that this thread is inside of, and the statuses that they were given.
    static RUNNING: RefCell<Vec<(Callback, Option<i32>)>> = const { RefCell::new(Vec::new()) };
}

/// The callbacks that the current thread is inside of: which call gave each, and from where; for reports.
pub(super) fn describe_running() -> Vec<String> {
    let describe = |(callback, status): &(Callback, Option<i32>)| {
        let status = status.map_or_else(String::new, |status| format!(" and Status={}", status::text(status)));
        format!(
            "inside {} with Context={:#x}{status}, given to {} of {}{}",
            callback.purpose.name(),
            callback.context,
            callback.given_to,
            callback.of.name(),
            object::place(&callback.given_at)
        )
    };
    RUNNING
        .try_with(|running| running.try_borrow().map(|running| running.iter().map(describe).collect()))
        .ok()
        .and_then(Result::ok)
        .unwrap_or_default()
}

/// The line of a callback, written when it begins.
fn trace_callback(callback: &Callback, arguments: &[u64]) {
    let subject = callback.object.get().unwrap_or(&callback.of);
    let mut line = trace::TraceLine::begin()
        .text(format!("#{} {} ", callback.call, subject.name()))
        .code(callback.function as u64 + 1)
        .text(format!(
            " is called as {} of {}(Context={:#x}",
            callback.purpose.name(),
            callback.given_to,
            callback.context
        ));
    let has_status = callback.purpose.has_status();
    for (index, argument) in arguments.iter().enumerate() {
        let text = if index == 0 && has_status {
            format!("Status={}", status::text(*argument as i32))
        } else {
            object::name_at(*argument as usize).unwrap_or_else(|| format!("{argument:#x}"))
        };
        line = line.text(format!(", {text}"));
    }
    line = line.text(")");
    if let Some(cause) = &callback.cause {
        line = line.text(format!(", because {cause}"));
    }
    line.end();
}

unsafe extern "win64" fn request_done(number: u64, status: u64) {
    let mut callback = begin_callback(number, |purpose| purpose == Purpose::Request, "NDK_FN_REQUEST_COMPLETION");
    not_pending(status, &callback);
    callback.cause = failure_cause(&callback, status);
    if let Some(mapping) = callback.mapping
        && is_success(status)
    {
        callback.family.mapped(mapping, &callback.given_at);
    }
    // SAFETY: the arguments of NDK_FN_REQUEST_COMPLETION.
    unsafe { call_consumer(&callback, &[status]) };
}

unsafe extern "win64" fn create_done(number: u64, status: u64, made: *mut NDK_OBJECT_HEADER) {
    let mut callback =
        begin_callback(number, |purpose| matches!(purpose, Purpose::Create(_)), "NDK_FN_CREATE_COMPLETION");
    not_pending(status, &callback);
    callback.cause = failure_cause(&callback, status);
    if is_success(status) {
        created(&callback, made);
    }
    // SAFETY: the arguments of NDK_FN_CREATE_COMPLETION.
    unsafe { call_consumer(&callback, &[status, made as u64]) };
}

/// Takes over what a create made, inline or not.
pub(super) fn created(callback: &Callback, made: *mut NDK_OBJECT_HEADER) {
    let Purpose::Create(kind) = callback.purpose else { return };
    if made.is_null() {
        broken(Group::Ndk, 0, format!("{} succeeded without an object", callback.given_to));
    }
    object::adopt(kind, made, &callback.family, (callback.given_to, callback.given_at.clone()));
    let own = super::object_at(kind, made as usize, callback.given_to);
    own.needs(std::slice::from_ref(&callback.of));
    own.needs(&callback.needs);
    // The events that the create was given are this object's.
    let _ = callback.object.set(own);
}

unsafe extern "win64" fn close_done(number: u64) {
    let callback = begin_callback(number, |purpose| purpose == Purpose::Close, "NDK_FN_CLOSE_COMPLETION");
    if let Some(object) = callback.object.get() {
        object.set_closed();
    }
    // SAFETY: the argument of NDK_FN_CLOSE_COMPLETION.
    unsafe { call_consumer(&callback, &[]) };
}

unsafe extern "win64" fn queue_notification(number: u64, status: u64) {
    let purpose = Purpose::QueueNotification;
    // SAFETY: as the provider calls it.
    unsafe { notify(number, status, purpose) };
}

unsafe extern "win64" fn shared_receive_notification(number: u64, status: u64) {
    let purpose = Purpose::SharedReceiveNotification;
    // SAFETY: as the provider calls it.
    unsafe { notify(number, status, purpose) };
}

unsafe fn notify(number: u64, status: u64, purpose: Purpose) {
    let expected = |purpose| matches!(purpose, Purpose::QueueNotification | Purpose::SharedReceiveNotification);
    let callback = begin_callback(number, expected, purpose.name());
    let object = callback.object.get();
    if object.is_some_and(|object| object.notifying.fetch_add(1, Ordering::SeqCst) != 0) {
        broken(Group::Ndk, number as usize, format!("two of {} of one queue run at once", purpose.name()));
    }
    if let Some(object) = object.filter(|_| callback.purpose == Purpose::QueueNotification) {
        object.begin_notification();
    }
    // SAFETY: the arguments of both notification callbacks.
    unsafe { call_consumer(&callback, &[status]) };
    if let Some(object) = object {
        object.notifying.fetch_sub(1, Ordering::SeqCst);
    }
}

unsafe extern "win64" fn connect_event(number: u64, connector: *mut NDK_OBJECT_HEADER) {
    let callback = begin_callback(number, |purpose| purpose == Purpose::ConnectEvent, "NDK_FN_CONNECT_EVENT_CALLBACK");
    let made = ("NDK_FN_CONNECT_EVENT_CALLBACK", callback.given_at.clone());
    object::adopt(NdkObjectKind::Connector, connector, &callback.family, made);
    if let (Some(listener), Some(own)) = (callback.object.get(), object::open_at(connector as usize)) {
        own.needs(std::slice::from_ref(listener));
    }
    // SAFETY: the arguments of NDK_FN_CONNECT_EVENT_CALLBACK.
    unsafe { call_consumer(&callback, &[connector as u64]) };
}

unsafe extern "win64" fn disconnect_event(number: u64) {
    let callback =
        begin_callback(number, |purpose| purpose == Purpose::DisconnectEvent, "NDK_FN_DISCONNECT_EVENT_CALLBACK");
    told_once(&callback);
    // SAFETY: the argument of NDK_FN_DISCONNECT_EVENT_CALLBACK.
    unsafe { call_consumer(&callback, &[]) };
}

unsafe extern "win64" fn disconnect_event_ex(number: u64, reason: u64) {
    let callback =
        begin_callback(number, |purpose| purpose == Purpose::DisconnectEventEx, "NDK_FN_DISCONNECT_EVENT_CALLBACK_EX");
    told_once(&callback);
    // SAFETY: the arguments of NDK_FN_DISCONNECT_EVENT_CALLBACK_EX.
    unsafe { call_consumer(&callback, &[reason]) };
}

fn told_once(callback: &Callback) {
    let Some(object) = callback.object.get() else { return };
    if object.disconnected.swap(true, Ordering::SeqCst) {
        broken(Group::Ndk, object.address, "a disconnect is indicated twice for one connection");
    }
}

/// Records a failure; its cause, where the provider knows it.
fn failure_cause(callback: &Callback, status: u64) -> Option<Cause> {
    if is_success(status) { None } else { refusals::completed(callback.given_to, &callback.of, status as i32) }
}

/// `NT_SUCCESS` of a status in a register, whose upper half is undefined.
fn is_success(status: u64) -> bool {
    status & 0x8000_0000 == 0
}

fn not_pending(status: u64, callback: &Callback) {
    const PENDING: u32 = 0x103;
    if status as u32 == PENDING {
        broken(Group::Ndk, 0, format!("the completion of {} says STATUS_PENDING", callback.given_to));
    }
}
