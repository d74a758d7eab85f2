//! The status page in a real browser: headless Chromium, driven by chromedriver over WebDriver.
//!
//! Where either program is missing the tests say so and pass. `CHROMEDRIVER` and `CHROMIUM` name others than those on the `PATH`; `AXE` names
//! the `axe.js` of axe-core, with which the sections are checked for accessibility; `UI_SCREENSHOTS` names a directory that the images
//! of `docs/ui.md` are written into.
#![cfg(test)]

mod browser;
mod edits;
mod page;
mod webdriver;
