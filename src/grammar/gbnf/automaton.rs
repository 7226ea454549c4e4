//! The regular parts of a grammar as automata, to see where a longer match could take what belongs to the next one.

use std::collections::HashSet;

use super::chars::CharSet;
use super::{Node, Rules};

/// A nondeterministic automaton over characters. Counted repetitions are loops: it accepts too much rather than too little.
#[derive(Debug)]
pub struct Automaton {
    states: Vec<State>,
    start: usize,
    end: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Ways on without a character; after [`Automaton::close`] all that can be reached so, this state included.
    free: Vec<usize>,
    on: Option<(CharSet, usize)>,
}

impl Automaton {
    /// The automaton of a node without recursion and tokens.
    pub fn new(node: &Node, rules: &Rules) -> Automaton {
        let mut automaton = Automaton { states: Vec::new(), start: 0, end: 0 };
        automaton.start = automaton.state();
        automaton.end = automaton.add(node, rules, automaton.start);
        automaton.close();
        automaton
    }

    /// True if the empty text is accepted.
    pub fn is_nullable(&self) -> bool {
        self.states[self.start].free.contains(&self.end)
    }

    /// The characters that a text may begin with.
    pub fn first(&self) -> CharSet {
        self.next(self.start)
    }

    /// The characters by which `longer` may go on where a text of this automaton that is not empty has ended.
    /// `fuel` is what it may cost; none is returned when it runs out.
    pub fn goes_on(&self, longer: &Automaton, fuel: &mut usize) -> Option<CharSet> {
        let mut seen = HashSet::new();
        let mut open = vec![(self.start, longer.start)];
        let mut on = CharSet::default();
        while let Some((p, q)) = open.pop() {
            for (chars, to) in self.edges(p) {
                for (other, other_to) in longer.edges(q) {
                    *fuel = fuel.checked_sub(1)?;
                    if !chars.meets(other) || !seen.insert((to, other_to)) {
                        continue;
                    }
                    if self.states[to].free.contains(&self.end) {
                        on.extend(&longer.next(other_to));
                    }
                    open.push((to, other_to));
                }
            }
        }
        Some(on)
    }

    fn edges(&self, state: usize) -> impl Iterator<Item = (&CharSet, usize)> {
        self.states[state].free.iter().filter_map(|&free| {
            let (chars, to) = self.states[free].on.as_ref()?;
            Some((chars, *to))
        })
    }

    fn next(&self, state: usize) -> CharSet {
        let mut next = CharSet::default();
        for (chars, _) in self.edges(state) {
            next.extend(chars);
        }
        next
    }

    fn state(&mut self) -> usize {
        self.states.push(State::default());
        self.states.len() - 1
    }

    /// Adds the states of a node behind `from`; returns where it ends.
    fn add(&mut self, node: &Node, rules: &Rules, from: usize) -> usize {
        match node {
            Node::Chars(chars) => {
                let (here, to) = (self.state(), self.state());
                self.states[from].free.push(here);
                self.states[here].on = Some((chars.clone(), to));
                to
            }
            // Not in what is regular; an end without a way on.
            Node::Token { .. } => self.state(),
            Node::Seq(items) => items.iter().fold(from, |from, item| self.add(item, rules, from)),
            Node::Alt(items) => {
                let end = self.state();
                for item in items {
                    let to = self.add(item, rules, from);
                    self.states[to].free.push(end);
                }
                end
            }
            Node::Repeat(inner, min, max) => {
                let (before, after) = (self.state(), self.state());
                self.states[from].free.push(before);
                let to = self.add(inner, rules, before);
                self.states[to].free.push(after);
                if *min == 0 {
                    self.states[before].free.push(after);
                }
                if *max != Some(1) {
                    self.states[to].free.push(before);
                }
                after
            }
            Node::Rule(rule) => self.add(&rules.bodies[*rule], rules, from),
        }
    }

    /// Makes every list of free ways complete.
    fn close(&mut self) {
        let closed: Vec<Vec<usize>> = (0..self.states.len()).map(|from| self.closure(from)).collect();
        for (state, free) in self.states.iter_mut().zip(closed) {
            state.free = free;
        }
    }

    /// What can be reached from a state without a character and leads on, and the end if it is among it.
    fn closure(&self, from: usize) -> Vec<usize> {
        let mut seen = HashSet::from([from]);
        let mut open = vec![from];
        while let Some(state) = open.pop() {
            open.extend(self.states[state].free.iter().filter(|&&to| seen.insert(to)));
        }
        let mut useful: Vec<usize> =
            seen.into_iter().filter(|&state| state == self.end || self.states[state].on.is_some()).collect();
        useful.sort_unstable();
        useful
    }
}
