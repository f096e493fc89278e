/** One thread as the page follows it: reads its state, starts runs, follows them through lost lines, stops them. */

import { ApiError } from "../api/client.ts";
import { cancelRun, isOver, joinRun, listRuns, listTasks, readRun, startRun, type OpenStream } from "../api/runs.ts";
import { createThread, readValues } from "../api/threads.ts";
import type { Message, Run, RunContext, StreamEvent } from "../api/types.ts";
import { isHuman } from "./messages.ts";
import { onNextFrame } from "./frames.ts";
import { failureOf, isLoss, pause } from "./losses.ts";
import { forgetRun, recallRun, rememberRun } from "./memory.ts";
import { reduce, withValues } from "./reduce.ts";
import { asksForOthers, recallTasks } from "./tasks.ts";
import { EMPTY_VIEW, isBusy, NO_THREAD, type Failure, type View } from "./view.ts";

const REPLAY_ALL = "-1";
const MOST_GAPS = 5;

type Opener = (signal: AbortSignal) => Promise<OpenStream>;

export class Conversation {
  readonly threadId: string;
  #view: View = EMPTY_VIEW;
  #queue: StreamEvent[] = [];
  #isScheduled = false;
  readonly #listeners = new Set<() => void>();
  readonly #closing = new AbortController();
  #created: Promise<unknown> | null = null;
  #wantsStop = false;
  #gaps = 0;
  #context: RunContext | null = null;

  constructor(threadId: string) {
    this.threadId = threadId;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  readonly read = (): View => this.#view;

  /** Show an existing thread, and go on following its run if one is under way. */
  async open(): Promise<void> {
    this.#created = Promise.resolve();
    const { signal } = this.#closing;
    try {
      const [values, run] = await Promise.all([readValues(this.threadId, signal), this.#latestRun()]);
      if (signal.aborted) return;
      this.#set(withValues(this.#view, values));
      void this.#recallTasks();
      if (run && !isOver(run)) await this.#followRun(run.run_id);
      else if (run?.status === "error" || run?.status === "timeout") this.#fail({ name: run.status, message: run.error ?? "" });
    } catch (error) {
      const isMissing = error instanceof ApiError && error.status === 404;
      if (!signal.aborted) this.#fail({ ...failureOf(error), ...(isMissing ? { name: NO_THREAD } : {}) });
    }
  }

  /** Make sure that the thread exists on the server. */
  ensureThread(): Promise<unknown> {
    this.#created ??= createThread(this.threadId).catch((error: unknown) => {
      this.#created = null;
      throw error;
    });
    return this.#created;
  }

  /** Start a run with `message`; returns when the run is over. */
  async send(message: Message, context: RunContext): Promise<void> {
    if (isBusy(this.#view)) return;
    this.#context = context;
    this.#wantsStop = false;
    this.#gaps = 0;
    const others = this.#view.messages.filter((old) => old.id !== message.id);
    const isAgain = others.length < this.#view.messages.length;
    this.#set({
      ...this.#view,
      status: "starting",
      runId: null,
      lastEventId: null,
      failure: null,
      notice: null,
      messages: isAgain ? this.#view.messages : [...others, message],
    });
    await this.#follow(async (signal) => {
      await this.ensureThread();
      return startRun(this.threadId, { input: { messages: [message] } }, context, signal);
    });
  }

  /** Answer what the thread waits for, by the questions' ids; returns when the run is over. */
  async answer(answers: Readonly<Record<string, unknown>>, context: RunContext): Promise<void> {
    if (isBusy(this.#view)) return;
    this.#wantsStop = false;
    this.#gaps = 0;
    this.#set({ ...this.#view, status: "starting", runId: null, lastEventId: null, failure: null, notice: null });
    const beginning = { command: { resume: answers } };
    await this.#follow((signal) => startRun(this.threadId, beginning, this.#context ?? context, signal));
  }

  /** Send the last thing the person said once more. */
  async retry(context: RunContext): Promise<void> {
    const last = this.#view.messages.findLast(isHuman);
    if (last) await this.send(last, this.#context ?? context);
    else await this.open();
  }

  /** Ask the server to stop the run; what it did so far stays. */
  async stop(): Promise<void> {
    this.#wantsStop = true;
    if (isBusy(this.#view)) this.#set({ ...this.#view, status: "stopping" });
    if (!this.#view.runId) return; // the stop is sent as soon as the run has a name
    try {
      await cancelRun(this.threadId, this.#view.runId);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 409)) this.#fail(failureOf(error)); // 409: already over
    }
  }

  /** Stop listening; the run itself goes on. */
  close(): void {
    this.#closing.abort();
    this.#listeners.clear();
  }

  async #latestRun(): Promise<Run | null> {
    const hinted = recallRun(this.threadId);
    const run = hinted ? await readRun(this.threadId, hinted).catch(() => null) : null;
    if (run && !isOver(run)) return run;
    const runs = await listRuns(this.threadId, this.#closing.signal);
    const newest = runs.reduce<Run | null>((best, next) => (best && best.created_at >= next.created_at ? best : next), null);
    return runs.find((candidate) => !isOver(candidate)) ?? newest;
  }

  /** Fetch what the sub-agents of earlier runs did: their steps are in the logs, not in the conversation. */
  async #recallTasks(): Promise<void> {
    const { signal } = this.#closing;
    const isMissing = () => this.#view.messages.some((message) => asksForOthers(this.#view.tasks, message));
    if (!isMissing()) return;
    const runs = await listRuns(this.threadId, signal).catch(() => [] as Run[]);
    const ended = runs.filter(isOver).sort((a, b) => b.created_at.localeCompare(a.created_at));
    for (const run of ended) {
      if (signal.aborted || !isMissing()) return;
      const rows = await listTasks(this.threadId, run.run_id, signal).catch(() => []);
      this.#set({ ...this.#view, tasks: recallTasks(this.#view.tasks, rows) });
    }
  }

  async #followRun(runId: string): Promise<void> {
    this.#set({ ...this.#view, status: "running", runId, lastEventId: null });
    await this.#follow((signal) => joinRun(this.threadId, runId, REPLAY_ALL, signal));
  }

  async #follow(first: Opener): Promise<void> {
    const { signal } = this.#closing;
    let open = first;
    for (let losses = 0; !signal.aborted; losses += 1) {
      const seen = this.#view.lastEventId;
      try {
        const isDone = await this.#consume(await open(signal), signal);
        this.#flush();
        if (isDone || signal.aborted) return;
        if (this.#view.runId && seen === this.#view.lastEventId && (await this.#isRunOver())) return await this.#settle();
      } catch (error) {
        this.#flush();
        if (signal.aborted) return;
        if (!isLoss(error)) return await this.#refused(error);
        if (!this.#view.runId && !(await this.#findRun())) return this.#fail(failureOf(error));
      }
      if (seen !== this.#view.lastEventId) losses = 0;
      this.#set({ ...this.#view, status: this.#wantsStop ? "stopping" : "reconnecting" });
      await pause(losses, signal);
      open = (again) => joinRun(this.threadId, this.#view.runId ?? "", this.#view.lastEventId ?? REPLAY_ALL, again);
    }
  }

  /** Take the events of one connection; true when the run has ended. */
  async #consume(stream: OpenStream, signal: AbortSignal): Promise<boolean> {
    if (stream.runId) this.#named(stream.runId);
    for await (const event of stream.events) {
      if (signal.aborted) return true;
      if (event.kind === "gap") {
        await this.#bridge(event.data);
        return false;
      }
      this.#take(event);
      if (event.kind === "metadata" && this.#view.runId === null) this.#flush();
      if (event.kind === "end") {
        this.#flush();
        forgetRun(this.threadId);
        return true;
      }
    }
    return false;
  }

  /** The server no longer has the events we miss: read the state, then go on with the newest. */
  async #bridge(data: unknown): Promise<void> {
    this.#gaps += 1;
    if (this.#gaps > MOST_GAPS) throw new ApiError(410, "The stream of this run cannot be followed any more.");
    const latest = (data as { latest_available_event_id?: string } | null)?.latest_available_event_id;
    const values = await readValues(this.threadId, this.#closing.signal);
    this.#set({ ...withValues(this.#view, values), lastEventId: latest ?? this.#view.lastEventId });
  }

  #named(runId: string): void {
    rememberRun(this.threadId, runId);
    this.#set({ ...this.#view, runId, status: this.#view.status === "stopping" ? "stopping" : "running" });
    if (this.#wantsStop) void this.stop();
  }

  /** Whether or not our request reached the server: is there a run of ours to follow? */
  async #findRun(): Promise<boolean> {
    const runs = await listRuns(this.threadId).catch(() => [] as Run[]);
    const active = runs.find((run) => !isOver(run));
    if (active) this.#named(active.run_id);
    return active !== undefined;
  }

  async #isRunOver(): Promise<boolean> {
    const run = await readRun(this.threadId, this.#view.runId ?? "").catch(() => null);
    return run !== null && isOver(run);
  }

  async #refused(error: unknown): Promise<void> {
    const isGone = error instanceof ApiError && (error.status === 404 || error.status === 409) && this.#view.runId !== null;
    if (isGone) await this.#settle();
    else this.#fail(failureOf(error));
  }

  async #settle(): Promise<void> {
    forgetRun(this.threadId);
    const values = await readValues(this.threadId, this.#closing.signal).catch(() => null);
    this.#set(reduce(values ? withValues(this.#view, values) : this.#view, { kind: "end", data: null }));
  }

  #fail(failure: Failure): void {
    this.#set({ ...this.#view, status: "failed", failure, notice: null });
  }

  #take(event: StreamEvent): void {
    this.#queue.push(event);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    onNextFrame(() => this.#flush()); // many events, one drawing
  }

  #flush(): void {
    this.#isScheduled = false;
    if (this.#queue.length === 0) return;
    const events = this.#queue;
    this.#queue = [];
    this.#set(events.reduce(reduce, this.#view));
  }

  #set(view: View): void {
    if (view === this.#view) return;
    this.#view = view;
    for (const listener of this.#listeners) listener();
  }
}
