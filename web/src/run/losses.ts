/** Lost lines and refusals: how to tell them apart, what to say, how long to wait. */

import { ApiError } from "../api/client.ts";
import type { Failure } from "./view.ts";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/** Tell a lost line (try again) from a refusal (say so). */
export function isLoss(error: unknown): boolean {
  if (error instanceof ApiError) return error.status === 0 || error.status === 429 || error.status >= 500;
  return error instanceof TypeError || error instanceof DOMException; // how browsers report a cut stream
}

/** Return what to tell the person about `error`. */
export function failureOf(error: unknown): Failure {
  if (error instanceof ApiError) return { name: error.status === 0 ? "offline" : `http_${error.status}`, message: error.message };
  return { name: "page", message: error instanceof Error ? error.message : String(error) };
}

/** Wait before the next try: longer after each loss, at once when the network comes back. */
export function pause(losses: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** losses));
    globalThis.addEventListener?.("online", done);
    signal.addEventListener("abort", done);
  });
}
