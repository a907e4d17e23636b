//! What each process has of the driver, counted and bounded by the registry's limits.
//!
//! All files of a process have one account, from the first file's create to the last one's close; what is charged to it may end later. A
//! charge is given back when the thing that it stands for is gone: an object's when its block is dropped, which the engine keeps as long
//! as its own object lives; a pended request's, and that of the memory it locks, when the request is completed.

use core::sync::atomic::{AtomicU64, Ordering};

use ndkpi_sys::nt::{NTSTATUS, PAGE_SIZE, STATUS_QUOTA_EXCEEDED};
use softndk_cells::{Dispose, NoMemory, Shared};
use softndk_engine::limits::STREAM_POOL;
use softndk_ioctl::{NdkCall, ObjectKind, ProcessLimits, RefusalCause};
use softndk_kernel::{irp::Request, spin_lock::SpinLock};

use crate::{
    link::configuration::PROCESS_LIMITS,
    runtime::refusal::{Refusal, Subject, refuse},
};

/// Lists of accounts, by the number of the process.
const LISTS: usize = 64;
/// Process numbers are multiples of it.
const PROCESS_STEP: u32 = 4;

/// Pool that every object takes beside its queues, in bytes, at most: its block, the engine's object and its place in the tables.
const OBJECT: u64 = 2048;

/// So much of each.
#[derive(Clone, Copy, Default)]
pub struct Amounts {
    pub objects: u64,
    /// Bytes of non-paged pool.
    pub pool: u64,
    /// Bytes of the process's memory that are locked.
    pub locked: u64,
    /// Requests that pend.
    pub requests: u64,
}

impl Amounts {
    /// An object without queues.
    pub const OBJECT: Self = Self { objects: 1, pool: OBJECT, locked: 0, requests: 0 };

    /// A connection, from when its connector is made, where it may go over a stream.
    pub const STREAM: Self = Self::pool(STREAM_POOL as u64);

    fn of(limits: ProcessLimits) -> Self {
        let bytes = |mib| u64::from(mib) << 20;
        Self {
            objects: u64::from(limits.objects),
            pool: bytes(limits.pool_mib),
            locked: bytes(limits.locked_mib),
            requests: u64::from(limits.requests),
        }
    }

    pub const fn pool(bytes: u64) -> Self {
        Self { objects: 0, pool: bytes, locked: 0, requests: 0 }
    }

    /// A request that is to pend, with the pages that it locks.
    pub fn request(request: &Request) -> Self {
        let lent = if request.mdl().is_null() { 0 } else { request.device_control().output_length as u64 };
        Self {
            requests: 1,
            locked: lent.div_ceil(PAGE_SIZE as u64).saturating_mul(PAGE_SIZE as u64),
            ..Self::default()
        }
    }

    fn each(&self) -> [u64; CAUSES.len()] {
        [self.objects, self.pool, self.locked, self.requests]
    }
}

/// Why a charge is refused, in the order of [`Amounts::each`].
const CAUSES: [RefusalCause; 4] =
    [RefusalCause::QUOTA_OBJECTS, RefusalCause::QUOTA_POOL, RefusalCause::QUOTA_LOCKED, RefusalCause::QUOTA_REQUESTS];

/// What a process has.
pub struct Account {
    process: u32,
    limits: Amounts,
    used: [AtomicU64; CAUSES.len()],
    /// Open files. Changed under the lock of the lists.
    files: AtomicU64,
    /// The next one in its list.
    next: SpinLock<Option<Shared<Self>>>,
}

impl Dispose for Account {}

impl Subject for Account {
    fn subject(&self) -> (ObjectKind, u64) {
        (ObjectKind::default(), u64::from(self.process))
    }
}

/// The accounts of processes with files, and the limits of those that come.
struct Accounts {
    lists: [Option<Shared<Account>>; LISTS],
    limits: ProcessLimits,
}

static ACCOUNTS: SpinLock<Accounts> =
    SpinLock::new(Accounts { lists: [const { None }; LISTS], limits: PROCESS_LIMITS });

/// Sets the limits of processes without an account yet. PASSIVE_LEVEL.
pub fn set_limits(limits: ProcessLimits) {
    ACCOUNTS.lock().limits = limits;
}

/// The limits of processes that come.
pub fn limits() -> ProcessLimits {
    ACCOUNTS.lock().limits
}

fn list_of(process: u32) -> usize {
    (process / PROCESS_STEP) as usize % LISTS
}

/// A file's share in the account of its process.
pub struct Member(Shared<Account>);

impl Member {
    pub fn account(&self) -> &Shared<Account> {
        &self.0
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        Account::leave(&self.0);
    }
}

impl Account {
    /// The account of a process, for one more file.
    pub fn enter(process: u32) -> Result<Member, NoMemory> {
        let limits = ACCOUNTS.lock().limits;
        let fresh = Shared::try_new(Self {
            process,
            limits: Amounts::of(limits),
            used: [const { AtomicU64::new(0) }; CAUSES.len()],
            files: AtomicU64::new(0),
            next: SpinLock::new(None),
        })?;
        let mut accounts = ACCOUNTS.lock();
        let Some(list) = accounts.lists.get_mut(list_of(process)) else { return Err(NoMemory) };
        let mut account = list.clone();
        while let Some(other) = account.take_if(|other| other.process != process) {
            let following = other.next.lock().clone();
            account = following;
        }
        let account = account.unwrap_or_else(|| {
            *fresh.next.lock() = list.replace(fresh.clone());
            fresh.clone()
        });
        account.files.fetch_add(1, Ordering::Relaxed);
        drop(accounts);
        Ok(Member(account))
    }

    /// A file has gone. With the last one another process may have the number.
    fn leave(account: &Shared<Self>) {
        let mut accounts = ACCOUNTS.lock();
        if account.files.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let Some(list) = accounts.lists.get_mut(list_of(account.process)) else { return };
        let rest = account.next.lock().take();
        if list.as_ref().is_some_and(|first| first.is(account)) {
            *list = rest;
            return;
        }
        let mut before = list.clone();
        while let Some(other) = before {
            let mut next = other.next.lock();
            if next.as_ref().is_some_and(|next| next.is(account)) {
                *next = rest;
                return;
            }
            let following = next.clone();
            drop(next);
            before = following;
        }
    }

    /// Charges a process; QUOTA_EXCEEDED, which is on the list of refusals, where that is more than it may have.
    pub fn charge(account: &Shared<Self>, amounts: Amounts) -> Result<Charge, NTSTATUS> {
        let mut charge = Charge { account: account.clone(), amounts: [0; CAUSES.len()] };
        charge.add(amounts)?;
        Ok(charge)
    }
}

/// What a process is charged for; given back by drop. `IRQL <= DISPATCH_LEVEL`.
pub struct Charge {
    account: Shared<Account>,
    amounts: [u64; CAUSES.len()],
}

impl Charge {
    /// Charges more; nothing where one of the amounts is too much.
    pub fn add(&mut self, more: Amounts) -> Result<(), NTSTATUS> {
        let mut taken = Self { account: self.account.clone(), amounts: [0; CAUSES.len()] };
        let limits = self.account.limits.each();
        let kinds = self.account.used.iter().zip(limits).zip(more.each()).zip(CAUSES).zip(&mut taken.amounts);
        for ((((used, limit), more), cause), taken) in kinds {
            let within = |used: u64| used.checked_add(more).filter(|sum| *sum <= limit);
            if more != 0 && used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
                let refusal = Refusal::new(cause, STATUS_QUOTA_EXCEEDED);
                return Err(refuse(NdkCall::NETWORK_DIRECT, &*self.account, refusal));
            }
            *taken = more;
        }
        // It is this charge's now.
        for (own, taken) in self.amounts.iter_mut().zip(&mut taken.amounts) {
            *own = own.saturating_add(core::mem::take(taken));
        }
        Ok(())
    }

    /// Charges an object for queues of so many bytes, unless it is charged for as many already.
    pub fn add_pool_up_to(&mut self, bytes: u64) -> Result<(), NTSTATUS> {
        let [_, pool, ..] = self.amounts;
        self.add(Amounts::pool(bytes.saturating_add(OBJECT).saturating_sub(pool)))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for (used, amount) in self.account.used.iter().zip(self.amounts) {
            used.fetch_sub(amount, Ordering::Relaxed);
        }
    }
}
