/** Runs work once per drawn frame; a hidden tab, which draws none, gets a timer instead. */

const HIDDEN_MS = 200;

export function onNextFrame(work: () => void): void {
  if (typeof document !== "undefined" && document.visibilityState === "visible") requestAnimationFrame(work);
  else setTimeout(work, HIDDEN_MS);
}
