//! Has the crate compiled anew when a scenario or a base tree changes: a file that is new is in no list of Cargo's.

fn main() {
    for folder in ["../../scenarios", "base"] {
        println!("cargo::rerun-if-changed={folder}");
    }
}
