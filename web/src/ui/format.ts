/** Small things said in few characters. */

import { ApiError } from "../api/client.ts";
import type { Words } from "../text/index.ts";

/** Return a size such as `1.4 MB`. */
export function fileSize(bytes: number): string {
  const units = ["B", "KB", "MB", "GB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** Return a count such as `12.3k`. */
export function shortCount(count: number): string {
  return count < 1000 ? String(count) : `${(count / 1000).toFixed(count < 10_000 ? 1 : 0)}k`;
}

/** Return `classes` that apply, joined. */
export function classes(...names: (string | false | null | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}

/** Return what to tell the person about `error`, in their language where the page knows it. */
export function reasonOf(error: unknown, words: Words): string {
  if (error instanceof ApiError && error.status === 0) return words.offlineError;
  return error instanceof Error ? error.message : String(error);
}
