//! The program in C, which knows the public header alone (program/): its commands with what they write.

use super::client::*;
use networkdirect::machine::Machine;
use networkdirect::{cases, cases::Case};

pub const CASES: &[Case] = cases![
    lists_adapters,
    plays_ping_pong,
    keeps_queues_full,
    shares_receives,
    lends_windows,
    connects_again_and_again,
    is_refused,
    speaks_version_1,
    calls_as_libfabric_does,
    calls_as_easyrdma_does,
];

#[track_caller]
fn writes(command: &str, expected: &[&str]) {
    let machine = Machine::start();
    run(&machine, command, expected);
    machine.finish();
}

#[track_caller]
fn run(machine: &Machine, command: &str, expected: &[&str]) {
    run_in(&Program::start(machine), command, expected);
}

#[track_caller]
fn run_in(program: &Program, command: &str, expected: &[&str]) {
    let line = program.run_program(command);
    let text = program.export("output_text", &[]);
    let bytes: Vec<u8> =
        (0..4096).map(|index| program.read(text + index, 1)[0]).take_while(|byte| *byte != 0).collect();
    let output = String::from_utf8(bytes).expect("ASCII");
    assert_eq!(line, 0, "{command}: {output}");
    assert_eq!(output.lines().collect::<Vec<_>>(), expected, "{command}");
}

fn lists_adapters() {
    let of = |ip: &str| format!("{ip}: queue pairs of 16351, completion queues of 65519, 32 SGEs, inline data of 128");
    writes("list", &[&of("10.0.0.1"), &of("10.0.0.2")]);
}

fn plays_ping_pong() {
    let machine = Machine::start();
    run(&machine, "pingpong", &["100 round trips"]);
    let lengths = [1, 4, 16, 64, 256, 1024, 4096, 16384, 65536];
    let lines = lengths.map(|length| format!("{length} bytes: 20 Writes, each seen by its last byte"));
    run(&machine, "write-pingpong", &lines.each_ref().map(String::as_str));
    machine.finish();
}

fn keeps_queues_full() {
    let machine = Machine::start();
    run(&machine, "reads", &["512 Reads of 4096 bytes"]);
    run(&machine, "writes", &["512 Writes of 4096 bytes"]);
    run(&machine, "sends", &["512 messages, one of 16 told"]);
    machine.finish();
}

fn shares_receives() {
    writes("shared", &["16 messages by shared receives, told when fewer than 4 were left"]);
}

fn lends_windows() {
    writes("windows", &["a window bound, read through, invalidated"]);
}

fn connects_again_and_again() {
    writes("connections", &["50 connections made and ended"]);
}

fn is_refused() {
    let machine = Machine::start();
    run(&machine, "errors", &["the usual refusals"]);
    run(&machine, "connection-errors", &["what a connector refuses, and what it survives"]);
    machine.finish();
}

fn speaks_version_1() {
    let lines = [1, 8, 64, 512, 4096].map(|length| format!("{length} bytes: 50 round trips"));
    let mut expected = lines.each_ref().map(String::as_str).to_vec();
    expected.push("a window lent, used and taken back");
    writes("version1", &expected);
}

fn calls_as_libfabric_does() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    run_in(&program, "verbs", &["the calls of libfabric's verbs layer"]);
    // It never releases its adapters.
    program.process.exit();
    machine.finish();
}

fn calls_as_easyrdma_does() {
    let machine = Machine::start();
    let program = Program::start(&machine);
    run_in(&program, "streams", &["the calls of easyrdma"]);
    // The files of its two ends stay open.
    (0..2).for_each(|_| program.keeps_a_handle());
    drop(program);
    machine.finish();
}
