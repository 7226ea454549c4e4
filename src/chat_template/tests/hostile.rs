//! Templates that want to hang, to fill the memory or to overflow the stack.

use std::time::{Duration, Instant};

use super::super::source::MAX_SOURCE;
use super::rendered;

/// What one rendering may take in an unoptimized build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn refused(source: &str) {
    let start = Instant::now();
    let result = rendered(source);
    let shown: String = source.chars().take(200).collect();
    assert!(result.is_err(), "{shown}");
    assert!(start.elapsed() < PATIENCE, "{shown}: {:?}", start.elapsed());
}

/// Whatever comes out, it comes out soon.
fn ends(source: &str) {
    let start = Instant::now();
    let _ = rendered(source);
    let shown: String = source.chars().take(200).collect();
    assert!(start.elapsed() < PATIENCE, "{shown}: {:?}", start.elapsed());
}

#[test]
fn work_without_end() {
    for source in [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(10**5) %}{% for j in range(10**5) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% for x in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{{ 2 ** (10 ** 9) }}",
    ] {
        refused(source);
    }
}

#[test]
fn texts_without_end() {
    let grown = |step: &str| {
        format!(
            "{{% set ns = namespace(s='xx') %}}{{% for i in range(99) %}}{{% set ns.s = {step} %}}{{% endfor %}}"
        )
    };
    for source in [
        "{{ 'x' * 10**9 }}".to_owned(),
        "{% set unused = 'x' * 10**8 %}".to_owned(),
        "{% if 'x' * 10**9 %}{% endif %}".to_owned(),
        "{{ 'x'.center(10**10) }}".to_owned(),
        "{{ 'x'.zfill(10**10) }}".to_owned(),
        "{{ '%999999999d'|format(1) }}".to_owned(),
        "{{ '{:999999999}'.format(1) }}".to_owned(),
        "{{ '{:{}}'.format(1, 999999999) }}".to_owned(),
        "{{ 'a\nb'|indent(10**9) }}".to_owned(),
        "{{ [[1]]|tojson(indent=10**9) }}".to_owned(),
        "{{ [[1]]|tojson(indent='x' * 10**6) }}".to_owned(),
        grown("ns.s ~ ns.s"),
        grown("ns.s + ns.s"),
        grown("ns.s * 100"),
        grown("ns.s.replace('x', ns.s)"),
        grown("ns.s.join([ns.s, ns.s, ns.s])"),
        grown("[ns.s, ns.s]|join(ns.s)"),
    ] {
        refused(&source);
    }
}

#[test]
fn lists_without_end() {
    let grown = |step: &str| {
        format!(
            "{{% set ns = namespace(s=[1]) %}}{{% for i in range(99) %}}{{% set ns.s = {step} %}}{{% endfor %}}"
        )
    };
    for source in [
        grown("ns.s + ns.s"),
        grown("ns.s * 100"),
        grown("[ns.s, ns.s]"),
        grown("(ns.s, ns.s)"),
        grown("{'a': ns.s, 'b': ns.s}"),
        grown("dict(a=ns.s, b=ns.s)"),
        grown("ns.s|zip(ns.s)"),
        "{{ [1] * 10**9 }}".to_owned(),
        "{{ [1] * 10**8 }}".to_owned(),
        "{% macro m(x, k) %}{% if k %}{{ m(x + x, k - 1) }}{% endif %}{% endmacro %}{{ m([1], 90) }}"
            .to_owned(),
    ] {
        refused(&source);
    }
}

#[test]
fn a_small_graph_that_is_a_huge_tree_is_not_built() {
    for uses in [
        "{{ ns.x }}",
        "{{ ns.x == ns.y }}",
        "{{ [ns.x, ns.y]|unique }}",
        "{{ {ns.x: 1} }}",
        "{{ ns.x|upper }}",
    ] {
        refused(&format!(
            "{{% set ns = namespace(x=[1], y=[1]) %}}{{% for i in range(60) %}}{{% set ns.x = [ns.x, ns.x] %}}\
             {{% set ns.y = [ns.y, ns.y] %}}{{% endfor %}}{uses}"
        ));
    }
}

#[test]
fn values_do_not_nest_without_end() {
    for wrapped in [
        "[ns.x]",
        "(ns.x,)",
        "{'a': ns.x}",
        "{ns.x: 1}",
        "dict(a=ns.x)",
        "namespace(a=ns.x)",
        "ns.x|batch(1)",
    ] {
        refused(&format!(
            "{{% set ns = namespace(x=[1]) %}}{{% for i in range(99999) %}}{{% set ns.x = {wrapped} %}}{{% endfor %}}"
        ));
    }
    // Values that hold themselves.
    for loops in [
        "{% set a.x = a %}",
        "{% set a.x = [a] %}",
        "{% set a.x = b %}{% set b.x = a %}",
        "{% set a.x = {'y': a} %}",
    ] {
        for uses in ["", "{{ a }}", "{{ a == b }}", "{{ [a, b]|unique }}", "{{ a|upper }}", "{{ a|pprint }}"]
        {
            refused(&format!("{{% set a = namespace() %}}{{% set b = namespace() %}}{loops}{uses}"));
        }
    }
}

#[test]
fn source_nested_without_end() {
    let nested = |open: &str, close: &str, n: usize| open.repeat(n) + "1" + &close.repeat(n);
    for source in [
        format!("{{{{ {} }}}}", nested("(", ")", 10_000)),
        format!("{{{{ {} }}}}", nested("[", "]", 4_000)),
        format!("{{{{ {} }}}}", nested("f(", ")", 2_000)),
        nested("{% if 1 %}", "{% endif %}", 6_000),
        nested("{% if 1 %}", "", 10_000),
        nested("{% for x in [1] %}", "{% endfor %}", 4_000),
        nested("{% macro m() %}", "{% endmacro %}", 4_000),
        "x".repeat(MAX_SOURCE + 1),
    ] {
        refused(&source);
    }
}

#[test]
fn long_chains_are_no_deep_recursion() {
    let filled = |start: &str, link: &str, end: &str| {
        start.to_owned() + &link.repeat((MAX_SOURCE - start.len() - end.len()) / link.len()) + end
    };
    let tags = |tag: &str| tag.repeat(MAX_SOURCE / tag.len());
    let expression = |link: &str, n: usize| format!("{{{{ x{} }}}}", link.repeat(n));
    for source in [
        filled("{% if 0 %}", "{% elif 0 %}", "{% endif %}"),
        filled("{{ '", "' '", "' }}"),
        filled("{{ 1", "+1", " }}"),
        filled("{{ x", ".a", " }}"),
        tags(&expression("~1", 120)),
        tags(&expression(" and 1", 1_300)),
        tags(&expression(".a", 4_000)),
        tags(&expression("|e", 4_000)),
        tags(&expression("[1]", 2_600)),
        tags(&expression("()", 4_000)),
        tags(&expression(" if 1 else 1", 600)),
        tags(
            "{{ 1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1 }}",
        ),
        tags(&format!("{{{{ {}1 }}}}", "not ".repeat(2_000))),
        "\n".repeat(MAX_SOURCE - 20) + "{{ nosuch.a }}",
        "{%".repeat(30_000),
        "{{".repeat(30_000),
        "{#".repeat(30_000),
        "{% raw %}".repeat(7_000),
        "{% set a.b.c = 1 %}".to_owned(),
    ] {
        ends(&source);
    }
}
