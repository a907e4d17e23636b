//! The rules of the script: each returns a line for what breaks it.

use super::{
    in_box::{AUTOMATIC, CMDLETS, Cmdlet, Effect, PROGRAMS, Program, RUNNERS, TYPES},
    script::{Command, Script, line},
};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is wrong with the script.
pub fn violations(text: &str) -> Vec<String> {
    let script = Script::parse(text);
    let mut broken = syntax(&script);
    // What does not parse has no commands to judge.
    if broken.is_empty() {
        broken.extend(commands(&script));
        broken.extend(types(&script));
        broken.extend(variables(&script));
        broken.extend(unused(&script));
        broken.extend(unguarded(&script));
    }
    broken
}

/// Windows PowerShell 5.1 reads a file without a byte order mark as text of the local code page, and knows no operators of version 7.
pub fn syntax(script: &Script) -> Vec<String> {
    let mut broken: Vec<String> =
        script.syntax_errors().into_iter().map(|line| format!("line {line}: no PowerShell")).collect();
    let foreign = |line: &&str| !line.is_ascii();
    broken.extend(script.text().lines().filter(foreign).map(|line| format!("not ASCII: {line}")));
    let newer = ["&&", "||", "??", "??=", "?.", "?["];
    let newer = script.nodes().into_iter().filter(|node| !node.is_named() && newer.contains(&node.kind()));
    broken.extend(newer.map(|node| format!("line {}: {} needs PowerShell 7", line(node), node.kind())));
    let ternary = script.nodes().into_iter().filter(|node| node.kind().contains("ternary"));
    broken.extend(ternary.map(|node| format!("line {}: a conditional expression needs PowerShell 7", line(node))));
    broken
}

/// The entry of a command in the lists, or what is wrong with it.
fn effect(script: &Script, command: &Command) -> Result<Effect, String> {
    let Command { name, words, line, .. } = command;
    if let Some(cmdlet) = CMDLETS.iter().find(|cmdlet| cmdlet.name == name) {
        return known_parameters(cmdlet, command).map(|()| cmdlet.effect);
    }
    if script.functions().contains(name) {
        let by_name = command.parameters.first();
        return by_name.map_or(Ok(Effect::Reads), |it| Err(format!("line {line}: {name} is given -{it} by name")));
    }
    let starts = |program: &&Program| program.name == name && program.words == words.as_slice();
    if let Some(program) = PROGRAMS.iter().find(starts) {
        return Ok(program.effect);
    }
    if RUNNERS.contains(&(command.function.as_str(), name.as_str())) {
        return Ok(Effect::Reads);
    }
    Err(format!("line {line}: {name} {} is not on the list of what is in the box", words.join(" ")))
}

fn known_parameters(cmdlet: &Cmdlet, command: &Command) -> Result<(), String> {
    let unknown = command.parameters.iter().find(|parameter| !cmdlet.parameters.contains(&parameter.as_str()));
    unknown.map_or(Ok(()), |unknown| {
        let Cmdlet { name, module, .. } = cmdlet;
        Err(format!("line {}: -{unknown} of {name} ({module}) is not on the list", command.line))
    })
}

fn commands(script: &Script) -> Vec<String> {
    script.commands().iter().filter_map(|command| effect(script, command).err()).collect()
}

/// Commands that change the machine, with what they do.
pub fn changes(script: &Script) -> Vec<(&Command, Effect)> {
    let known = |command| effect(script, command).ok().map(|effect| (command, effect));
    script.commands().iter().filter_map(known).filter(|(_, effect)| effect.changes()).collect()
}

fn types(script: &Script) -> Vec<String> {
    let unknown = script.types().into_iter().filter(|(name, _)| !TYPES.contains(&name.as_str()));
    unknown.map(|(name, line)| format!("line {line}: the type [{name}] is not on the list")).collect()
}

/// Strict mode ends the script at a variable without a value, which is most often a misspelt one.
fn variables(script: &Script) -> Vec<String> {
    let (read, given) = script.variables();
    let unknown = read.into_iter().filter(|(name, _)| !given.contains(name) && !AUTOMATIC.contains(&name.as_str()));
    unknown.map(|(name, line)| format!("line {line}: ${name} never gets a value")).collect()
}

/// Parameters and functions that nothing uses.
fn unused(script: &Script) -> Vec<String> {
    let (read, _) = script.variables();
    let read: BTreeSet<&str> = read.iter().map(|(name, _)| name.as_str()).collect();
    let parameters = script.parameters().into_iter().filter(|name| !read.contains(name.to_lowercase().as_str()));
    let mut broken: Vec<String> = parameters.map(|name| format!("the parameter -{name} is not used")).collect();
    let mut called: BTreeSet<String> = script.commands().iter().map(|command| command.name.clone()).collect();
    // What it starts stands for it.
    called.insert("Invoke-Tool".to_owned());
    broken.extend(script.functions().difference(&called).map(|name| format!("the function {name} is not used")));
    broken
}

/// Commands that change the machine although -WhatIf was said: those that no `if ($PSCmdlet.ShouldProcess(…))` is around, neither in
/// their function nor in every one that calls it.
fn unguarded(script: &Script) -> Vec<String> {
    let unguarded: Vec<&Command> = script.commands().iter().filter(|command| !command.guarded).collect();
    // A function that changes something without a guard, and the command by which it does.
    let mut changing: BTreeMap<&str, &Command> = BTreeMap::new();
    let changes = |command: &Command, changing: &BTreeMap<&str, &Command>| {
        changing.contains_key(command.name.as_str()) || effect(script, command).is_ok_and(Effect::changes)
    };
    let mut before = usize::MAX;
    while before != changing.len() {
        before = changing.len();
        for command in &unguarded {
            if !changing.contains_key(command.function.as_str()) && changes(command, &changing) {
                changing.insert(&command.function, command);
            }
        }
    }
    let reached = |from: &Command| {
        let mut path = vec![from.name.as_str()];
        while let Some(next) = path.last().and_then(|last| changing.get(last)) {
            path.push(&next.name);
        }
        path.join(" > ")
    };
    let outermost = unguarded.iter().filter(|command| command.function.is_empty() && changes(command, &changing));
    outermost.map(|command| format!("line {}: -WhatIf does not keep from {}", command.line, reached(command))).collect()
}
