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
