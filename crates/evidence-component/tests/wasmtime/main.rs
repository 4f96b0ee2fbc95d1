//! The component in wasmtime. It is built by `cargo xtask component`.

mod calls;
mod dynamic;
mod host;
mod hostile;
mod vectors;

#[path = "../../examples/host.rs"]
mod example;

#[test]
fn the_example_runs() {
    example::main().unwrap();
}

#[test]
fn every_item_of_the_interfaces_is_documented() {
    let mut documented = false;
    let mut items = 0;
    for line in include_str!("../../wit/evidence.wit").lines() {
        let line = line.trim();
        let is_item = !["", "}"].contains(&line)
            && !["///", "use ", "import ", "export "]
                .iter()
                .any(|word| line.starts_with(word));
        assert!(documented || !is_item, "{line} has no documentation");
        items += usize::from(is_item);
        documented = line.starts_with("///");
    }
    assert!(items > 100);
}

#[test]
fn the_component_asks_for_nothing_but_the_blobs() {
    let component = host::component();
    let engine = component.engine();
    let ty = component.component_type();
    let imports: Vec<&str> = ty.imports(engine).map(|(name, _)| name).collect();
    let blobs = concat!(
        "bounded-evidence:evidence/blobs@",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(imports, [blobs]);
}
