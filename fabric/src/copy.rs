//! Copies, between a process's own memory and words that other processes read and write at the same time, and within
//! its own memory.
//!
//! Rust can copy shared words only one at a time, with atomic loads and stores. On x86-64, vector instructions copy
//! whole cache lines, which is several times as fast. The string instruction (`rep movsb`) is no faster, and AMD's
//! processors execute it byte by byte at a *slow distance*: if the destination's offset in its page exceeds the
//! source's offset in its page by 1 to 31 bytes. There 64 KiB take 22 µs instead of 1.3 (measured on Zen 3 for each
//! distance; glibc bug 30994 has figures of Zen 4).
//!
//! Memory is often at a slow distance. glibc puts blocks of 128 KiB and more 16 bytes behind the start of a page, and
//! packets begin with a header of a few dozen bytes. The `memcpy` of glibc before 2.40 uses the string instruction from
//! 2 KiB on, so at a slow distance [`copy_bytes`] does not call it. Linux uses the instruction to copy to and from
//! sockets, so the buffers of [`ofi`](crate::ofi) lie where headers lead to no slow distance.

use std::sync::atomic::{AtomicU64, Ordering};

use samite_os::shared::Shareable;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Copies as many whole lines as `from` fills to the start of `lines`. Returns the number of copied lines, which is 0
/// if the processor has no suitable vector instructions.
///
/// # Panics
/// Panics if `lines` has fewer lines than that.
pub(crate) fn fill<T: Shareable>(lines: &[T], from: &[u8]) -> usize {
    const { assert!(size_of::<T>() == LINE) }
    let count = from.len() / LINE;
    assert!(count <= lines.len(), "a copy stays inside");
    // SAFETY: by the assertion, `count` lines can be read at `from` and written at `lines`. The lines are atomics,
    // which may be written through a shared reference, and for which any bytes are values.
    unsafe { vectors::copy(from.as_ptr(), lines.as_ptr().cast_mut().cast(), count) }
}

/// Copies as many whole lines as fit in `into` from the start of `lines`, and sets the first 8 bytes of each to zero.
/// Returns the number of copied lines, which is 0 if the processor has no suitable vector instructions.
///
/// # Panics
/// Panics if `lines` has fewer lines than that.
pub(crate) fn take<T: Shareable>(lines: &[T], into: &mut [u8]) -> usize {
    const { assert!(size_of::<T>() == LINE) }
    let count = into.len() / LINE;
    assert!(count <= lines.len(), "a copy stays inside");
    // SAFETY: as above, in the other direction; `into` is exclusively borrowed.
    unsafe { vectors::take(lines.as_ptr().cast_mut().cast(), into.as_mut_ptr(), count) }
}

/// Copies the bytes of shared words from byte `offset` on, until `into` is full.
///
/// # Panics
/// If there are fewer bytes than `into` has room for.
pub(crate) fn copy_out(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    let end = offset.checked_add(into.len());
    assert!(end.is_some_and(|end| end <= size_of_val(words)), "a copy stays inside");
    let from = words.as_ptr().cast::<u8>();
    // SAFETY: by the assertion, `into.len()` bytes of atomics follow `offset`; `into` is exclusively
    // borrowed.
    let copied = LINE * unsafe { vectors::copy(from.add(offset), into.as_mut_ptr(), into.len() / LINE) };
    load_words(words, offset + copied, &mut into[copied..]);
}

/// Copies as [`copy_out`] does. A word that is copied as a whole is never a mixture of an old and a new value: it is
/// loaded atomically, or as a part of a vector that begins with a word.
///
/// # Panics
/// If there are fewer bytes than `into` has room for.
pub(crate) fn load_words(words: &[AtomicU64], offset: usize, into: &mut [u8]) {
    const WORD: usize = size_of::<AtomicU64>();
    let end = offset.checked_add(into.len());
    assert!(end.is_some_and(|end| end <= size_of_val(words)), "a copy stays inside");
    let (words, skipped) = (&words[offset / WORD..], offset % WORD);
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed).to_ne_bytes();
    let in_first = if skipped == 0 { 0 } else { into.len().min(WORD - skipped) };
    let (head, rest) = into.split_at_mut(in_first);
    if !head.is_empty() {
        head.copy_from_slice(&load(&words[0])[skipped..][..head.len()]);
    }
    let words = &words[usize::from(skipped > 0).min(words.len())..];
    let (whole, tail) = rest.as_chunks_mut();
    let (whole_words, last) = words.split_at(whole.len());
    let lines = if whole.len() < VECTORS_FROM { 0 } else { whole.len() / LINE_WORDS };
    // SAFETY: both have that many lines; `whole` is exclusively borrowed.
    let lines = unsafe { vectors::copy(whole_words.as_ptr().cast(), whole.as_mut_ptr().cast(), lines) };
    let copied = lines * LINE_WORDS;
    for (into, word) in whole[copied..].iter_mut().zip(&whole_words[copied..]) {
        *into = load(word);
    }
    if !tail.is_empty() {
        tail.copy_from_slice(&load(&last[0])[..tail.len()]);
    }
}

/// Stores words whose bytes are at `from`. No word is ever seen as a mixture of an old and a new value: each is stored
/// atomically, or as a part of a vector that begins with a word.
///
/// # Safety
/// As many bytes as the words have can be read at `from`.
#[inline]
pub(crate) unsafe fn store_words(words: &[AtomicU64], from: *const u8) {
    let lines = if words.len() < VECTORS_FROM { 0 } else { words.len() / LINE_WORDS };
    // SAFETY: the caller guarantees the bytes at `from`. The words are atomics, which may be written through a shared
    // reference, and for which any bytes are values.
    let lines = unsafe { vectors::copy(from, words.as_ptr().cast_mut().cast(), lines) };
    for (index, word) in words.iter().enumerate().skip(lines * LINE_WORDS) {
        // SAFETY: the index is one of the words.
        let value = unsafe { from.add(index * size_of::<AtomicU64>()).cast::<u64>().read_unaligned() };
        word.store(value, Ordering::Relaxed);
    }
}

/// Copies `from` to `into`, which have the same length. Unlike [`copy_from_slice`](slice::copy_from_slice) it does not
/// become slow on AMD's processors if the destination's offset in its page exceeds the source's by 1 to 31 bytes (glibc
/// bug 30994). Meant for copies of possibly 2 KiB and more.
///
/// # Panics
/// If the lengths differ.
// Not inlined: two calls in place of the one of `memcpy` would take registers from the code around them.
#[inline(never)]
pub fn copy_bytes(from: &[u8], into: &mut [u8]) {
    if into.len() < STRING_MIN {
        return into.copy_from_slice(from);
    }
    assert_eq!(from.len(), into.len(), "a copy has one length");
    // SAFETY: the slices have that length. `into` is exclusively borrowed, so they do not overlap.
    unsafe { copy_apart(from.as_ptr(), into.as_mut_ptr(), into.len()) }
}

/// Copies `len` bytes between places that do not overlap, as [`copy_bytes`] does.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
pub(crate) unsafe fn copy_apart(from: *const u8, into: *mut u8, len: usize) {
    let is_slow = (STRING_MIN..STRING_END).contains(&len) && is_slow(from.addr(), into.addr());
    let lines = if is_slow { len / LINE } else { 0 };
    // SAFETY: the caller meets the conditions of `copy_nonoverlapping`, which include those of `vectors::copy`. The
    // lines and the rest are `len` bytes together.
    unsafe {
        let copied = LINE * vectors::copy(from, into, lines);
        std::ptr::copy_nonoverlapping(from.add(copied), into.add(copied), len - copied);
    }
}

/// Returns true if the second address is at a slow distance from the first.
pub(crate) fn is_slow(from: usize, into: usize) -> bool {
    (1..=SLOW_MAX).contains(&(into.wrapping_sub(from) % PAGE))
}

/// glibc uses the string instruction for at least this many bytes (`__x86_rep_movsb_threshold`), or for at least a few
/// more, depending on the processor.
const STRING_MIN: usize = 2048;

/// glibc uses the string instruction for fewer bytes than this: than the second cache has (`rep_movsb_stop_threshold`),
/// which is 512 KiB in Zen 3 and 1 MiB in Zen 4.
const STRING_END: usize = 1 << 20;

/// The longest slow distance.
const SLOW_MAX: usize = 31;

/// Bytes of a page, as the processor compares addresses.
const PAGE: usize = 4096;

/// Words of a cache line.
const LINE_WORDS: usize = LINE / size_of::<AtomicU64>();

/// The number of words from which vectors are faster than a loop over the words.
///
/// A vector that begins with a word consists of whole words, and so does the part of it in each cache line. No x86-64
/// processor is known to divide an aligned word of a vector. The manuals promise that for aligned vectors of 16 bytes
/// (Intel SDM, volume 3, "Guaranteed Atomic Operations"; AMD APM, volume 2, "Access Atomicity").
const VECTORS_FROM: usize = 4 * LINE_WORDS;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod vectors {
    //! These copies are machine code. So unlike Rust's copies they may race with accesses of other processes to the
    //! same bytes.

    /// Copies cache lines in a loop, with vectors of 32 bytes or of 16. After each line the instruction `after` is
    /// executed.
    macro_rules! lines {
        ($from:ident, $into:ident, $count:ident, $after:literal) => {
            if $count == 0 {
            } else if std::is_x86_feature_detected!("avx") {
                std::arch::asm!(
                    "2:",
                    "vmovdqu ymm0, [{from}]",
                    "vmovdqu ymm1, [{from} + 32]",
                    "vmovdqu [{into}], ymm0",
                    "vmovdqu [{into} + 32], ymm1",
                    $after,
                    "add {from}, 64",
                    "add {into}, 64",
                    "dec {count}",
                    "jnz 2b",
                    // Without this instruction, SSE instructions that are executed later would be slow, because the
                    // upper halves of the registers would count as in use.
                    "vzeroupper",
                    from = inout(reg) $from => _, into = inout(reg) $into => _, count = inout(reg) $count => _,
                    // `vzeroupper` changes all sixteen registers. The operand `xmm0` stands for the whole register,
                    // upper half included.
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                    out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _, options(nostack)
                )
            } else {
                std::arch::asm!(
                    "2:",
                    "movdqu xmm0, [{from}]",
                    "movdqu xmm1, [{from} + 16]",
                    "movdqu xmm2, [{from} + 32]",
                    "movdqu xmm3, [{from} + 48]",
                    "movdqu [{into}], xmm0",
                    "movdqu [{into} + 16], xmm1",
                    "movdqu [{into} + 32], xmm2",
                    "movdqu [{into} + 48], xmm3",
                    $after,
                    "add {from}, 64",
                    "add {into}, 64",
                    "dec {count}",
                    "jnz 2b",
                    from = inout(reg) $from => _, into = inout(reg) $into => _, count = inout(reg) $count => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, options(nostack)
                )
            }
        };
    }

    /// Copies lines. Returns their number.
    ///
    /// # Safety
    /// The caller meets the conditions of [`copy_nonoverlapping`](std::ptr::copy_nonoverlapping), except that other
    /// processes may access the bytes at the same time, and this process through atomics.
    #[inline]
    pub(super) unsafe fn copy(from: *const u8, into: *mut u8, count: usize) -> usize {
        let lines = count;
        // SAFETY: it reads and writes the spans that the caller guarantees, and changes only the named registers and
        // the flags. AVX is used only if processor and system have it; SSE2 is part of the architecture.
        unsafe { lines!(from, into, count, "") };
        lines
    }

    /// Copies as [`copy`] does, and sets the first 8 bytes of each line to zero once they are copied.
    ///
    /// # Safety
    /// The caller meets the conditions of [`copy`], and the lines can be written at `from`.
    #[inline]
    pub(super) unsafe fn take(from: *mut u8, into: *mut u8, count: usize) -> usize {
        let lines = count;
        // SAFETY: as in `copy`.
        unsafe { lines!(from, into, count, "mov qword ptr [{from}], 0") };
        lines
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod vectors {
    pub(super) unsafe fn copy(_: *const u8, _: *mut u8, _: usize) -> usize {
        0
    }

    pub(super) unsafe fn take(_: *mut u8, _: *mut u8, _: usize) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C, align(64))]
    struct Words([AtomicU64; 8]);
    // SAFETY: eight atomic words, `repr(C)`, 64 bytes: no padding.
    unsafe impl Shareable for Words {}

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8 + 1).collect()
    }

    #[test]
    fn copies_out_begin_and_end_anywhere() {
        let all = bytes(8 * 40);
        let words: Vec<_> =
            all.as_chunks().0.iter().map(|&bytes| AtomicU64::new(u64::from_ne_bytes(bytes))).collect();
        for start in (0..70).chain(200..209) {
            for end in (start..start + 70).chain(310..=320) {
                for copy in [copy_out, load_words] {
                    let mut into = vec![0xff; end - start];
                    copy(&words, start, &mut into);
                    assert_eq!(into, all[start..end], "{start}..{end}");
                }
            }
        }
    }

    #[test]
    fn bytes_are_copied_at_each_distance() {
        let all = bytes(3 * PAGE);
        let untouched = vec![0xff; 5 * PAGE];
        let mut memory = untouched.clone();
        for len in [0, 1, STRING_MIN - 1, STRING_MIN, STRING_MIN + 63, 2 * PAGE] {
            for shift in 0..3 {
                for distance in (0..80).chain(PAGE - 40..PAGE) {
                    let from = &all[shift..shift + len];
                    let before =
                        (from.as_ptr().addr() + distance).wrapping_sub(memory.as_ptr().addr()) % PAGE;
                    let at = PAGE + before;
                    let into = memory[at..].as_ptr();
                    assert_eq!(is_slow(from.as_ptr().addr(), into.addr()), (1..32).contains(&distance));
                    memory.fill(0xff);
                    copy_bytes(from, &mut memory[at..at + len]);
                    assert_eq!(&memory[at..at + len], from);
                    assert!(memory[..at] == untouched[..at], "no byte before");
                    assert!(memory[at + len..] == untouched[at + len..], "no byte behind");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "a copy has one length")]
    fn a_long_copy_has_one_length() {
        copy_bytes(&[0; STRING_MIN], &mut [0; STRING_MIN + 1]);
    }

    #[test]
    #[should_panic(expected = "a copy stays inside")]
    fn a_copy_out_stays_inside() {
        copy_out(&[AtomicU64::new(0)], 7, &mut [0; 2]);
    }

    #[test]
    fn whole_lines_are_filled_and_taken() {
        let lines: Vec<_> = (0..5).map(|_| Words(Default::default())).collect();
        for len in [0, 1, 63, 64, 65, 128, 319, 320] {
            for shift in 0..16 {
                let all = bytes(shift + len);
                let from = &all[shift..];
                let filled = fill(&lines, from);
                if filled == 0 {
                    continue;
                }
                assert_eq!(filled, len / LINE);
                let mut into = vec![0xff; shift + len];
                assert_eq!(take(&lines, &mut into[shift..]), filled);
                let whole = shift + filled * LINE;
                assert_eq!(into[shift..whole], from[..filled * LINE]);
                assert!(into[..shift].iter().chain(&into[whole..]).all(|&byte| byte == 0xff), "no byte more");
                for (line, bytes) in lines.iter().zip(from.chunks_exact(LINE)) {
                    let words = line.0.iter().map(|word| word.load(Ordering::Relaxed));
                    let expected = bytes.as_chunks().0.iter().map(|&bytes| u64::from_ne_bytes(bytes));
                    assert!(words.eq(std::iter::once(0).chain(expected.skip(1))), "the first word is zero");
                }
            }
        }
    }

    /// A copy must preserve the vector registers of its caller. Only an optimized build keeps values in these
    /// registers, so only there can this test fail.
    #[test]
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn a_caller_keeps_its_vectors() {
        use std::arch::x86_64::{__m256i, _mm256_storeu_si256};

        #[inline(never)]
        #[target_feature(enable = "avx2")]
        fn through(values: &[[u64; 4]; 4], from: &[u8], into: &[Words]) -> [[u64; 4]; 4] {
            let vectors = values.each_ref().map(|value| {
                let vector: __m256i;
                // The load is an explicit instruction: the compiler might repeat a plain load after the copy, instead
                // of keeping its value in a register.
                // SAFETY: the instruction reads the 32 bytes of an array.
                unsafe {
                    std::arch::asm!("vmovdqu {}, [{}]", out(ymm_reg) vector, in(reg) value, options(nostack))
                };
                vector
            });
            // SAFETY: as in `fill`: `from` has as many bytes as the lines of `into`.
            unsafe { vectors::copy(from.as_ptr(), into.as_ptr().cast_mut().cast(), into.len()) };
            let mut after = [[0; 4]; 4];
            for (after, vector) in after.iter_mut().zip(vectors) {
                // SAFETY: the instruction writes the 32 bytes of an array that is exclusively borrowed.
                unsafe { _mm256_storeu_si256(after.as_mut_ptr().cast(), vector) };
            }
            after
        }

        if !std::is_x86_feature_detected!("avx2") {
            return;
        }
        let lines: Vec<_> = (0..5).map(|_| Words(Default::default())).collect();
        let values = std::array::from_fn(|i| std::array::from_fn(|j| 4 * i as u64 + j as u64 + 1));
        // SAFETY: the processor has it.
        assert_eq!(unsafe { through(&values, &bytes(5 * LINE), &lines) }, values);
    }

    #[test]
    #[should_panic(expected = "a copy stays inside")]
    fn a_line_too_many_is_not_filled() {
        fill(&[Words(Default::default())], &[0; 128]);
    }

    #[test]
    #[should_panic(expected = "a copy stays inside")]
    fn a_line_too_many_is_not_taken() {
        take(&[Words(Default::default())], &mut [0; 128]);
    }
}
