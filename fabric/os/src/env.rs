//! The environment, as C libraries read it.

/// Returns a variable's value, if it is set and is text.
#[must_use]
pub fn get(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "parameters of a C library, which it takes from nowhere else"
    )]
    std::env::var(name).ok()
}

/// Sets a variable for the C libraries of this process, if the process has no second thread that might read
/// the environment meanwhile. Returns true if it has set the variable.
#[must_use]
pub fn set_while_alone(name: &str, value: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").map(|tasks| tasks.take(2).count());
    if !matches!(threads, Ok(1)) {
        return false;
    }
    // SAFETY: the kernel lists only one thread, which is this one. So no other thread reads or writes the environment
    // at the same time. No thread is started meanwhile, since only this thread could start one.
    unsafe { std::env::set_var(name, value) };
    true
}
