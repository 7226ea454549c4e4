//! A second opinion for tests: the meaning of a grammar by trying everything.

use std::collections::{BTreeSet, HashMap};

use super::{Node, Rules};

/// True if the grammar accepts exactly this text.
pub fn accepts(rules: &Rules, text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let mut ends: HashMap<(usize, usize), BTreeSet<usize>> = HashMap::new();
    // Ends of rules by start; grown until nothing changes, so that recursion needs no order.
    loop {
        let before: usize = ends.values().map(BTreeSet::len).sum();
        for rule in 0..rules.bodies.len() {
            for start in 0..=chars.len() {
                let found = reach(&rules.bodies[rule], &chars, start, &ends);
                ends.entry((rule, start)).or_default().extend(found);
            }
        }
        if ends.values().map(BTreeSet::len).sum::<usize>() == before {
            break;
        }
    }
    ends.get(&(rules.root, 0)).is_some_and(|ends| ends.contains(&chars.len()))
}

fn reach(
    node: &Node,
    chars: &[char],
    start: usize,
    rules: &HashMap<(usize, usize), BTreeSet<usize>>,
) -> BTreeSet<usize> {
    let step = |node: &Node, starts: &BTreeSet<usize>| -> BTreeSet<usize> {
        starts.iter().flat_map(|&start| reach(node, chars, start, rules)).collect()
    };
    match node {
        Node::Chars(set) => {
            chars.get(start).filter(|&&c| set.contains(c)).map(|_| start + 1).into_iter().collect()
        }
        Node::Token { .. } => BTreeSet::new(),
        Node::Seq(items) => items.iter().fold(BTreeSet::from([start]), |starts, item| step(item, &starts)),
        Node::Alt(items) => items.iter().flat_map(|item| reach(item, chars, start, rules)).collect(),
        Node::Repeat(inner, min, max) => {
            let mut starts = BTreeSet::from([start]);
            let mut all = BTreeSet::new();
            for n in 0..=max.unwrap_or(*min + chars.len() as u32 + 1) {
                if n >= *min {
                    all.extend(&starts);
                }
                starts = step(inner, &starts);
            }
            all
        }
        Node::Rule(rule) => rules.get(&(*rule, start)).cloned().unwrap_or_default(),
    }
}
