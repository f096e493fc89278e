/** Remembers, for this tab, which run a thread was following, so that a reload finds it at once. */

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

/** Storage may be switched off; the page then works without memory. */
function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
