/** Threads: list, open, rename, delete. */

import { call } from "./client.ts";
import type { Interrupt, MessagePage, Thread, Values } from "./types.ts";

export const PAGE_SIZE = 50;
const MESSAGES_PER_PAGE = 100;

interface State {
  readonly values: Values | null;
  readonly interrupts?: readonly Interrupt[];
}

const THREAD_ID = /^[A-Za-z0-9_-]{1,64}$/;

export function isThreadId(text: string): boolean {
  return THREAD_ID.test(text);
}

export function threadPath(threadId: string): string {
  return `/api/threads/${encodeURIComponent(threadId)}`;
}

export function searchThreads(offset = 0): Promise<Thread[]> {
  return call("POST", "/api/threads/search", {
    limit: PAGE_SIZE,
    offset,
    sort_by: "updated_at",
    sort_order: "desc",
    select: ["thread_id", "status", "created_at", "updated_at", "values.title", "metadata", "waits_for_answer"],
  });
}

/** Create the thread, or find it as it is. */
export function createThread(threadId: string): Promise<Thread> {
  return call("POST", "/api/threads", { thread_id: threadId, metadata: {} });
}

export async function readValues(threadId: string, signal?: AbortSignal): Promise<Values> {
  const state = await call<State>("GET", `${threadPath(threadId)}/state`, undefined, signal);
  return { ...state.values, __interrupt__: state.interrupts ?? [] };
}

/** Read the newest messages of a thread's whole history, or those before a number. */
export function readMessages(threadId: string, before: number | null, signal?: AbortSignal): Promise<MessagePage> {
  const from = before === null ? "" : `&before_seq=${before}`;
  return call("GET", `${threadPath(threadId)}/messages/page?limit=${MESSAGES_PER_PAGE}${from}`, undefined, signal);
}

export function renameThread(threadId: string, title: string): Promise<unknown> {
  return call("POST", `${threadPath(threadId)}/state`, { values: { title } });
}

export function deleteThread(threadId: string): Promise<unknown> {
  return call("DELETE", threadPath(threadId));
}
