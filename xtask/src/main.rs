//! Set-up, build, serve, test and bench, in one place.

fn main() {}
