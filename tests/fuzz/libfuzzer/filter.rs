#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = nm_fuzz::plugin::filter(data);
});
