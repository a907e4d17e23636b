//! A PowerShell script as the rules see it: what tree-sitter's parser makes of it, reduced to commands, functions and variables.

use std::collections::BTreeSet;
use tree_sitter::{Node, Parser, Tree};

pub struct Script {
    text: String,
    tree: Tree,
    functions: BTreeSet<String>,
    commands: Vec<Command>,
}

/// A call of a cmdlet, a function of the script or a program.
pub struct Command {
    /// `Copy-Item`; of a program, its file name; of what a variable names, the variable.
    pub name: String,
    /// Parameters by name, without the hyphen.
    pub parameters: Vec<String>,
    /// The words of a program's command line that are constant; the constant arguments of others.
    pub words: Vec<String>,
    /// The function that it is in; empty for the script itself.
    pub function: String,
    /// The clause of a `switch` that it is in.
    pub clause: Option<String>,
    /// It runs only after ShouldProcess has agreed, or without -WhatIf.
    pub guarded: bool,
    pub line: usize,
}

impl Script {
    pub fn parse(text: &str) -> Self {
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_powershell::LANGUAGE.into()).unwrap();
        let tree = parser.parse(text, None).unwrap();
        let mut script = Self { text: text.to_owned(), tree, functions: BTreeSet::new(), commands: Vec::new() };
        let names = script.of_kind("function_name").into_iter().map(|name| script.source(name).to_owned());
        script.functions = names.collect();
        script.commands = script.of_kind("command").into_iter().map(|node| script.command(node)).collect();
        script
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Every node, the outer ones first.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        below(self.tree.root_node())
    }

    fn of_kind(&self, kind: &str) -> Vec<Node<'_>> {
        self.nodes().into_iter().filter(|node| node.kind() == kind).collect()
    }

    pub fn source(&self, node: Node<'_>) -> &str {
        &self.text[node.byte_range()]
    }

    /// Lines where the parser found no meaning.
    pub fn syntax_errors(&self) -> Vec<usize> {
        self.nodes().into_iter().filter(|node| node.is_error() || node.is_missing()).map(line).collect()
    }

    pub fn functions(&self) -> &BTreeSet<String> {
        &self.functions
    }

    /// The names of the script's own parameters.
    pub fn parameters(&self) -> Vec<String> {
        let block = self.of_kind("param_block").into_iter().next().expect("a script with a param block");
        let parameters = below(block).into_iter().filter(|node| node.kind() == "script_parameter");
        let variable = |parameter: Node<'_>| {
            let mut cursor = parameter.walk();
            let variable = parameter.children(&mut cursor).find(|child| child.kind() == "variable");
            self.source(variable.expect("a parameter is a variable"))[1..].to_owned()
        };
        parameters.map(variable).collect()
    }

    /// The types that it names in brackets, with their lines.
    pub fn types(&self) -> Vec<(String, usize)> {
        let outermost = |node: &Node<'_>| node.parent().is_none_or(|parent| parent.kind() != "type_spec");
        let types = self.of_kind("type_spec").into_iter().filter(outermost);
        types.map(|node| (self.source(node).trim_end_matches("[]").to_owned(), line(node))).collect()
    }

    /// Variables that are read, with their lines, and all that get a value somewhere. Scopes are not told apart.
    pub fn variables(&self) -> (Vec<(String, usize)>, BTreeSet<String>) {
        let (mut read, mut given) = (Vec::new(), BTreeSet::new());
        for variable in self.nodes().into_iter().filter(|node| ["variable", "braced_variable"].contains(&node.kind())) {
            let name = self.source(variable).trim_start_matches(['$', '@', '{']).trim_end_matches('}').to_lowercase();
            let name = name.strip_prefix("script:").unwrap_or(&name).to_owned();
            if self.gets_value(variable) {
                given.insert(name);
            } else if variable.kind() == "variable" || variable.child_count() == 0 {
                read.push((name, line(variable)));
            }
        }
        (read, given)
    }

    fn gets_value(&self, variable: Node<'_>) -> bool {
        let parent = variable.parent().expect("a variable is inside of something");
        if ["script_parameter", "foreach_statement"].contains(&parent.kind()) {
            return true;
        }
        let assigned = ancestors(variable).find(|node| node.kind() == "left_assignment_expression");
        // `$a.B = 1` reads a.
        assigned.is_some_and(|left| !self.source(left).contains(['.', '[']) || self.source(left).starts_with('['))
    }

    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    fn command(&self, node: Node<'_>) -> Command {
        let mut parts = own_parts(node);
        let mut name = self.source(parts.remove(0)).to_owned();
        let mut words: Vec<String> = parts.iter().filter_map(|part| self.word(*part)).collect();
        // What `Invoke-Tool` starts is the command.
        if name == "Invoke-Tool" && !parts.is_empty() {
            let tool = parts.iter().find(|part| part.kind() == "unary_expression").copied();
            name = tool.map(|tool| self.source(tool).trim_matches('\'').to_owned()).unwrap_or_default();
            words.retain(|word| *word != name);
        }
        let parameters = parts.iter().filter(|part| part.kind() == "command_parameter");
        Command {
            name,
            parameters: parameters.map(|part| self.source(*part)[1..].to_owned()).collect(),
            words,
            function: self.function_of(node),
            clause: self.clause_of(node),
            guarded: self.is_guarded(node),
            line: line(node),
        }
    }

    /// A constant word of a command line.
    fn word(&self, part: Node<'_>) -> Option<String> {
        let text = self.source(part);
        match part.kind() {
            "string_literal" if text.starts_with('\'') => Some(text.trim_matches('\'').to_owned()),
            "generic_token" => Some(text.to_owned()),
            _ => None,
        }
    }

    fn function_of(&self, node: Node<'_>) -> String {
        let function = ancestors(node).find(|node| node.kind() == "function_statement");
        function.map_or_else(String::new, |function| self.source(function.child(1).expect("a name")).to_owned())
    }

    fn clause_of(&self, node: Node<'_>) -> Option<String> {
        let clause = ancestors(node).find(|node| node.kind() == "switch_clause")?;
        Some(self.source(clause.child(0)?).trim_matches('\'').to_owned())
    }

    fn is_guarded(&self, node: Node<'_>) -> bool {
        let mut inner = node;
        ancestors(node).any(|outer| {
            let guards = outer.kind() == "if_statement"
                && inner.kind() == "statement_block"
                && outer.named_child(0).is_some_and(|condition| {
                    let condition = self.source(condition);
                    condition.starts_with("$PSCmdlet.ShouldProcess(") || condition == "-not $WhatIfPreference"
                });
            inner = outer;
            guards
        })
    }

    /// The conditions of the clauses of the `switch` in a function, without `default`.
    pub fn clauses(&self, function: &str) -> BTreeSet<String> {
        let clauses = self.of_kind("switch_clause").into_iter().filter(|node| self.function_of(*node) == function);
        let conditions = clauses.filter_map(|clause| Some(self.source(clause.child(0)?).trim_matches('\'').to_owned()));
        conditions.filter(|condition| condition != "default").collect()
    }

    /// The constant texts of the list that is assigned to a variable.
    pub fn list(&self, variable: &str) -> Vec<String> {
        let assignments = self.of_kind("assignment_expression");
        let wanted = |node: &&Node<'_>| self.source(**node).starts_with(&format!("${variable} = @("));
        let assignment = assignments.iter().find(wanted).expect("the list is assigned");
        let texts = below(*assignment).into_iter().filter(|node| node.kind() == "string_literal");
        texts.map(|node| self.source(node).trim_matches('\'').to_owned()).collect()
    }
}

/// Children of a command that belong to its own command line, not to a command, a script block or an expression inside of it.
fn own_parts(command: Node<'_>) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    let mut open = vec![command];
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        let mut children = node.children(&mut cursor).collect::<Vec<_>>();
        children.reverse();
        for child in children {
            let foreign =
                ["command", "script_block_expression", "redirection", "sub_expression"].contains(&child.kind());
            // A command in parentheses is not a part, but its siblings may be.
            if !foreign {
                open.push(child);
            }
        }
        if !["command", "command_elements", "command_argument_sep"].contains(&node.kind()) && node.is_named() {
            found.push(node);
        }
    }
    found.retain(|node| node.kind() != "command_invokation_operator");
    found
}

/// The node and all inside of it, the outer ones first.
fn below(root: Node<'_>) -> Vec<Node<'_>> {
    let (mut found, mut open) = (Vec::new(), vec![root]);
    while let Some(node) = open.pop() {
        found.push(node);
        let mut cursor = node.walk();
        let children = node.children(&mut cursor).collect::<Vec<_>>();
        open.extend(children.into_iter().rev());
    }
    found
}

fn ancestors(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    std::iter::successors(node.parent(), Node::parent)
}

pub fn line(node: Node<'_>) -> usize {
    node.start_position().row + 1
}
