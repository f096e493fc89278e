/** Runs: start, follow, stop. */

import { call, send } from "./client.ts";
import { readEvents } from "./sse.ts";
import { threadPath } from "./threads.ts";
import type { Message, Run, RunContext, StreamEvent, TaskRow } from "./types.ts";

const STREAM_MODES = ["values", "messages-tuple", "updates", "custom"];

/** A run's stream and, when the server named it in a header, the run. */
export interface OpenStream {
  readonly runId: string | null;
  readonly events: AsyncGenerator<StreamEvent, void, undefined>;
}

/** What a run begins with: something said, or the answers to what the thread waits for, by their ids. */
export type Beginning =
  | { readonly input: { readonly messages: readonly Message[] } }
  | { readonly command: { readonly resume: Readonly<Record<string, unknown>> } }
  | Repetition;

/** What a run begins with that answers a question once more: the question, and where the thread stood before it. */
export interface Repetition {
  readonly input: { readonly messages: readonly Message[] };
  readonly checkpoint: Readonly<Record<string, unknown>>;
  readonly metadata: Readonly<Record<string, unknown>>;
}

export async function prepareRegenerate(threadId: string, messageId: string, signal: AbortSignal): Promise<Repetition> {
  const { input, checkpoint, metadata } = await call<Repetition>("POST", `${threadPath(threadId)}/runs/regenerate/prepare`, { message_id: messageId }, signal);
  return { input, checkpoint, metadata };
}

export async function startRun(
  threadId: string,
  beginning: Beginning,
  context: RunContext,
  signal: AbortSignal,
): Promise<OpenStream> {
  const response = await send(`${threadPath(threadId)}/runs/stream`, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({
      assistant_id: "lead_agent",
      ...beginning,
      context,
      config: { recursion_limit: 1000 },
      stream_mode: STREAM_MODES,
      on_disconnect: "continue",
    }),
  });
  return { runId: runIdOf(response), events: readEvents(response, signal) };
}

/** Follow a run from behind `lastEventId`; `-1` replays it from its first event. */
export async function joinRun(
  threadId: string,
  runId: string,
  lastEventId: string,
  signal: AbortSignal,
): Promise<OpenStream> {
  const modes = STREAM_MODES.map((mode) => `stream_mode=${mode}`).join("&");
  const response = await send(`${runPath(threadId, runId)}/stream?${modes}`, {
    signal,
    headers: { Accept: "text/event-stream", "Last-Event-ID": lastEventId },
  });
  return { runId, events: readEvents(response, signal) };
}

export function listRuns(threadId: string, signal?: AbortSignal): Promise<Run[]> {
  return call("GET", `${threadPath(threadId)}/runs?limit=10`, undefined, signal);
}

export function readRun(threadId: string, runId: string): Promise<Run> {
  return call("GET", runPath(threadId, runId));
}

export function cancelRun(threadId: string, runId: string): Promise<unknown> {
  return call("POST", `${runPath(threadId, runId)}/cancel?wait=0&action=interrupt`);
}

/** A run's sub-agents with their steps, as its log has them. */
export function listTasks(threadId: string, runId: string, signal?: AbortSignal): Promise<TaskRow[]> {
  return call("GET", `${runPath(threadId, runId)}/tasks?steps=true`, undefined, signal);
}

export function isOver(run: Run): boolean {
  return run.status !== "pending" && run.status !== "running";
}

function runPath(threadId: string, runId: string): string {
  return `${threadPath(threadId)}/runs/${encodeURIComponent(runId)}`;
}

function runIdOf(response: Response): string | null {
  return /\/runs\/([^/?]+)/.exec(response.headers.get("Content-Location") ?? "")?.[1] ?? null;
}
