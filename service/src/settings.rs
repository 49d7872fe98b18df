//! The settings of a rank, as a program changes them.

use samite_control::SettingError;

/// The values of all parameters: `samite info --parameters` lists them.
///
/// A value that a program sets takes precedence over the environment:
/// ```
/// let mut settings = samite::Settings::from_environment()?;
/// settings.set("eager_max", "4K")?;
/// # Ok::<(), samite::SettingError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Settings(pub(crate) samite_control::Settings);

impl Settings {
    /// Returns the defaults, changed by this process's environment.
    ///
    /// # Errors
    /// [`SettingError::Value`].
    pub fn from_environment() -> Result<Settings, SettingError> {
        samite_control::Settings::from_environment().map(Settings)
    }

    /// Sets a parameter by its name, like `eager_max`.
    ///
    /// # Errors
    /// [`SettingError`] if there is no such parameter, or the value is invalid.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        self.0.set(name, value)
    }

    /// Returns the selected transport, if any.
    #[must_use]
    pub fn transport(&self) -> Option<&str> {
        self.0.transport()
    }

    /// Returns the selected interface, if any.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        self.0.interface()
    }
}
