/** Remembers, for this tab, which run a thread was following and what it could not send, for after a reload. */

import type { Message } from "../api/types.ts";

const unsentKey = (threadId: string): string => `deerflow:unsent:${threadId}`;
const key = (threadId: string): string => `deerflow:run:${threadId}`;

export function rememberRun(threadId: string, runId: string): void {
  attempt(() => sessionStorage.setItem(key(threadId), runId));
}

export function recallRun(threadId: string): string | null {
  return attempt(() => sessionStorage.getItem(key(threadId))) ?? null;
}

export function forgetRun(threadId: string): void {
  attempt(() => sessionStorage.removeItem(key(threadId)));
}

/** Keep a message until the server is known to have it. */
export function keepUnsent(threadId: string, message: Message): void {
  attempt(() => sessionStorage.setItem(unsentKey(threadId), JSON.stringify(message)));
}

export function recallUnsent(threadId: string): Message | null {
  return attempt(() => JSON.parse(sessionStorage.getItem(unsentKey(threadId)) ?? "null") as Message | null) ?? null;
}

export function forgetUnsent(threadId: string): void {
  attempt(() => sessionStorage.removeItem(unsentKey(threadId)));
}

/** Storage may be switched off; the page then works without memory. */
function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
