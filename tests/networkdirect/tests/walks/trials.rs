//! The walks, each in a process of its own: it boots a kernel with as many processors as it needs.

mod ndk;
mod page;
mod sources;
mod user_mode;

#[path = "../provider/border.rs"]
#[allow(dead_code, reason = "the client is that of the provider suite")]
mod border;
#[path = "../provider/calls.rs"]
#[allow(dead_code, reason = "the client is that of the provider suite")]
mod calls;
#[path = "../provider/client.rs"]
#[allow(dead_code, reason = "the client is that of the provider suite")]
mod client;
#[path = "../provider/ends.rs"]
#[allow(dead_code, clippy::wildcard_imports, reason = "the client is that of the provider suite")]
mod ends;

use kernel_host::step::Steps;
use libtest_mimic::{Arguments, Failed, Trial};
use networkdirect::machine;
use softndk_images::{nd_program, workspace::Workspace};
use sources::{Entered, Sources};
use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Names the walk that a child process records.
const WALK: &str = "SOFTNDK_WALK";

/// The walks, by the names that the page has for them.
const WALKS: [(&str, Record); 5] = [
    ("small NdkRead", ndk::small_read),
    ("large NdkRead", ndk::large_read),
    ("NdkSend", ndk::send),
    ("NetworkDirect Read by doorbell", user_mode::read_by_doorbell),
    ("NetworkDirect Read by the poller", user_mode::read_by_the_poller),
];

/// The calls of a walk in their order, each with the files that it enters and those before it do not.
type Walk = Vec<(&'static str, Vec<Entered>)>;

type Record = fn() -> Walk;

/// The steps of each call of a walk.
type Recording = Vec<(&'static str, Steps)>;

/// Recordings until two in a row are the same, those that fail included.
const RECORDINGS: usize = 100;

pub fn main() -> ExitCode {
    if let Ok(wanted) = env::var(WALK) {
        let (_, record) = WALKS.into_iter().find(|(name, _)| *name == wanted).expect("one of the walks");
        page::print(&record());
        return ExitCode::SUCCESS;
    }
    let is_release = env::var_os("SOFTNDK_IMAGE").is_some()
        && machine::image().components().any(|part| part.as_os_str() == "release");
    let mut arguments = Arguments::from_args();
    // The page is written by one after the other.
    arguments.test_threads = Some(1);
    if is_release {
        nd_program::build(&workspace()).unwrap_or_else(|error| panic!("{error:#}"));
    }
    let walks = WALKS.map(|(name, _)| Trial::test(name, move || in_child(name)).with_ignored_flag(!is_release));
    let names = Trial::test("names and purposes", names_and_purposes_are_short);
    libtest_mimic::run(&arguments, walks.into_iter().chain([names]).collect()).exit_code()
}

fn in_child(name: &'static str) -> Result<(), Failed> {
    let output = Command::new(env::current_exe()?).env(WALK, name).output()?;
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("{}\n{text}{errors}", output.status).into());
    }
    page::compare(&workspace(), name, &page::parse(&text)).map_err(Failed::from)
}

fn workspace() -> Workspace {
    Workspace::at(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// Records until two recordings in a row are the same, because a timer of the driver may come between. A recording that gives nothing has
/// failed.
fn stable(mut record: impl FnMut() -> Option<Recording>) -> Walk {
    let workspace = workspace();
    let mut sources = Sources::new(workspace.root());
    let mut before = None;
    for _ in 0..RECORDINGS {
        let Some(calls) = record() else { continue };
        let walk = sources.walk(&calls);
        if before.as_ref() == Some(&walk) {
            return walk;
        }
        before = Some(walk);
    }
    panic!("no two of {RECORDINGS} recordings are the same");
}

fn names_and_purposes_are_short() -> Result<(), Failed> {
    for (name, plain) in [
        ("softnd::com::face(core::ffi::c_void*)", "face"),
        ("softndk_engine::a::B<softndk::C>::read<D<E>,F>(unsigned int)", "read"),
        ("softndk::nd::queue_pair::impl$0::doorbell::closure$1(A)", "doorbell"),
        ("enum2$<core::option::Option<A> >::as_ref()", "as_ref"),
    ] {
        let found = sources::plain_name(name);
        if found.as_deref() != Some(plain) {
            return Err(format!("{name}: {found:?}").into());
        }
    }
    for (source, purpose) in [
        ("//! Rings: [`A`]\n//! and `b.rs`. More.\n//!\n//! Rules.\nuse c;\n", "Rings: `A` and `b.rs`"),
        ("//! One line.\nuse c;\n", "One line"),
        ("use c;\n", ""),
    ] {
        let found = page::purpose(source);
        if found != purpose {
            return Err(format!("{source}: {found}").into());
        }
    }
    Ok(())
}
