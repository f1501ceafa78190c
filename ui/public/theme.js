// Before the first paint: the theme that was chosen last time, so that the page does not flash.
try {
  const chosen = localStorage.getItem('kaiwo-theme')
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen
} catch {
  // Storage can be forbidden; then the system's theme is shown.
}
