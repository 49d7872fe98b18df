#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| samite_hostile::windows(bytes));
