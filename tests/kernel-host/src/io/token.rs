//! The openers of devices as access tokens: the groups that they are members of and those that count for denials only, the
//! privileges that they hold and those that are enabled, their integrity.

/// The opener of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A thread of the system process: kernel mode is not checked at all.
    Kernel,
    /// A service running as SYSTEM.
    System,
    /// An elevated administrator.
    Administrator,
    /// An administrator who is not elevated: the token is filtered, and Administrators can deny only.
    FilteredAdministrator,
    /// A program of an elevated administrator that runs with low integrity.
    LowIntegrity,
    /// A user without administrator rights.
    User,
}

/// How far a token, or the label of an object, is trusted; in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Integrity {
    Untrusted,
    Low,
    Medium,
    High,
    System,
}

/// Privileges by their numbers (wdm.h).
pub const SE_LOAD_DRIVER: u64 = 10;
pub const SE_DEBUG: u64 = 20;
pub const SE_CHANGE_NOTIFY: u64 = 23;
pub const SE_IMPERSONATE: u64 = 29;
pub const SE_CREATE_GLOBAL: u64 = 30;

/// Those that this host knows.
pub const PRIVILEGES: [u64; 5] = [SE_LOAD_DRIVER, SE_DEBUG, SE_CHANGE_NOTIFY, SE_IMPERSONATE, SE_CREATE_GLOBAL];

/// What an access check is about. Groups have the names that they have in SDDL.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    /// User and groups that are enabled.
    pub enabled: &'static [&'static str],
    /// Groups that entries which allow pass by.
    pub deny_only: &'static [&'static str],
    pub privileges: &'static [u64],
    /// Those of the privileges that count before the program asks for more.
    pub enabled_privileges: &'static [u64],
    pub integrity: Integrity,
}

const SYSTEM: Token = Token {
    enabled: &["SY", "BA", "WD", "AU"],
    deny_only: &[],
    privileges: &PRIVILEGES,
    enabled_privileges: &[SE_DEBUG, SE_CHANGE_NOTIFY, SE_IMPERSONATE, SE_CREATE_GLOBAL],
    integrity: Integrity::System,
};

const ADMINISTRATOR: Token = Token {
    enabled: &["BA", "BU", "WD", "AU", "IU"],
    deny_only: &[],
    privileges: &PRIVILEGES,
    enabled_privileges: &[SE_CHANGE_NOTIFY, SE_IMPERSONATE, SE_CREATE_GLOBAL],
    integrity: Integrity::High,
};

const USER: Token = Token {
    enabled: &["BU", "WD", "AU", "IU"],
    deny_only: &[],
    privileges: &[SE_CHANGE_NOTIFY],
    enabled_privileges: &[SE_CHANGE_NOTIFY],
    integrity: Integrity::Medium,
};

impl Caller {
    /// `None` for kernel mode, which is not checked.
    #[must_use]
    pub fn token(self) -> Option<Token> {
        match self {
            Self::Kernel => None,
            Self::System => Some(SYSTEM),
            Self::Administrator => Some(ADMINISTRATOR),
            Self::FilteredAdministrator => Some(Token { deny_only: &["BA"], ..USER }),
            Self::LowIntegrity => Some(Token { integrity: Integrity::Low, ..ADMINISTRATOR }),
            Self::User => Some(USER),
        }
    }
}

impl Token {
    /// Whether an entry that allows counts for it.
    #[must_use]
    pub fn is_member(&self, sid: &str) -> bool {
        self.enabled.contains(&sid)
    }

    /// Whether an entry that denies does.
    #[must_use]
    pub fn is_denied_as(&self, sid: &str) -> bool {
        self.is_member(sid) || self.deny_only.contains(&sid)
    }

    /// Whether a privilege is there and enabled: what SeSinglePrivilegeCheck asks.
    #[must_use]
    pub fn has_enabled(&self, privilege: u64) -> bool {
        self.privileges.contains(&privilege) && self.enabled_privileges.contains(&privilege)
    }
}
