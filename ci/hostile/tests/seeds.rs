//! Runs the targets on programs made from seeds, and on the programs that have found a defect.

use samite_fabric::SplitMix64;

/// Runs `target` on programs of random bytes. Later programs may be longer.
fn from_seeds(programs: u64, target: fn(&[u8])) {
    for seed in 0..programs {
        let mut rng = SplitMix64::new(seed);
        let len = rng.below(1 + 2 * seed.min(500)) as usize;
        let program: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        if std::panic::catch_unwind(|| target(&program)).is_err() {
            panic!("the program of seed {seed}, {len} bytes: {program:?}");
        }
    }
}

/// Runs `target` on the inputs with which it has failed in the past.
fn again(name: &str, target: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(name);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("it is in the repository") {
        target(&std::fs::read(entry.expect("a readable folder").path()).expect("a readable file"));
        inputs += 1;
    }
    assert!(inputs > 0, "nothing in {}", folder.display());
}

#[test]
fn headers() {
    from_seeds(5_000, samite_hostile::header);
}

#[test]
fn addresses() {
    from_seeds(2_000, samite_hostile::addresses);
}

#[cfg(feature = "ofi")]
#[test]
fn ofi_addresses() {
    from_seeds(5_000, samite_hostile::ofi_addresses);
}

#[test]
fn environments() {
    from_seeds(2_000, samite_hostile::environment);
}

#[test]
fn engines() {
    from_seeds(3_000, samite_hostile::engine);
    again("engine", samite_hostile::engine);
}

#[test]
fn forged_messages_of_collective_operations() {
    from_seeds(5_000, samite_hostile::collective);
}

#[test]
fn forged_packets_of_windows() {
    from_seeds(5_000, samite_hostile::windows);
}

#[test]
fn hostile_members() {
    from_seeds(1_000, samite_hostile::member);
    again("member", samite_hostile::member);
}

#[test]
fn hostile_writers_of_rings() {
    from_seeds(2_000, samite_hostile::ring);
}
