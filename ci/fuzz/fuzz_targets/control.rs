#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    samite_control::fuzzing::control(bytes);
    samite::fuzzing::launcher(bytes);
});
