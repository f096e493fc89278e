/** One thread as the page follows it: reads its state, starts runs, follows them through lost lines, stops them. */

import { ApiError } from "../api/client.ts";
import { cancelRun, isOver, joinRun, listRuns, listTasks, type OpenStream, prepareRegenerate, readRun, startRun } from "../api/runs.ts";
import { createThread, readMessages, readValues } from "../api/threads.ts";
import type { Message, MessagePage, Run, RunContext, StreamEvent } from "../api/types.ts";
import { isHuman, withPage } from "./messages.ts";
import { onNextFrame } from "./frames.ts";
import { failureOf, isLoss, pause } from "./losses.ts";
import { forgetRun, forgetUnsent, keepUnsent, recallRun, recallUnsent, rememberRun } from "./memory.ts";
import { reduce, withValues } from "./reduce.ts";
import { asksForOthers, recallTasks } from "./tasks.ts";
import { EMPTY_VIEW, isBusy, NO_THREAD, UNSENT, type Failure, type View } from "./view.ts";

const REPLAY_ALL = "-1";
const MOST_GAPS = 5;

type Opener = (signal: AbortSignal) => Promise<OpenStream>;
type Answers = Readonly<Record<string, unknown>>;

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
  /** Answers that have not reached the server. */
  #unsentAnswers: Answers | null = null;
  /** Ids of messages that were read from the history, and the number before which its next page ends. */
  #read: ReadonlySet<string> = new Set();
  #before: number | null = null;
  #isLoading = false;
  /** The newest run that was shown. */
  #shownRun: string | null = null;

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
      if (signal.aborted || isBusy(this.#view)) return; // who writes quicker than that has the run's own values soon
      this.#shownRun = run?.run_id ?? null;
      this.#unsentAnswers = null;
      const page = values.summary_text ? await this.#newestPage() : null;
      if (signal.aborted || isBusy(this.#view)) return;
      // What failed before may work now, and what was answered elsewhere waits no more.
      const fresh: View = { ...this.#view, status: "idle", failure: null, waiting: [], summary: values.summary_text ?? null, summedUp: new Set() };
      this.#set(this.#withPage(withValues(fresh, values), page));
      void this.#recallTasks();
      if (run && !isOver(run)) await this.#followRun(run.run_id);
      else if (run?.status === "error" || run?.status === "timeout") this.#fail({ name: run.status, message: run.error ?? "" });
      this.#offerUnsent();
    } catch (error) {
      if (signal.aborted || isBusy(this.#view)) return;
      const isMissing = error instanceof ApiError && error.status === 404;
      this.#fail({ ...failureOf(error), ...(isMissing ? { name: NO_THREAD } : { isOfReading: true }) });
      if (!isMissing) return;
      this.#created = null;
      this.#offerUnsent();
    }
  }

  /** Show what came before the first message that is shown. */
  async loadEarlier(): Promise<void> {
    if (!this.#view.hasEarlier || this.#isLoading) return;
    this.#isLoading = true;
    try {
      const page = await readMessages(this.threadId, this.#before, this.#closing.signal);
      this.#set(this.#withPage(this.#view, page));
    } catch {
      // The button stays, for another try.
    } finally {
      this.#isLoading = false;
    }
  }

  /** See whether others went on with the thread since it was shown: another tab, a schedule, the terminal. */
  async catchUp(): Promise<void> {
    if (isBusy(this.#view) || this.#created === null) return;
    const run = await this.#latestRun().catch(() => null);
    if (run && run.run_id !== this.#shownRun && !isBusy(this.#view)) await this.open();
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
    this.#unsentAnswers = null;
    keepUnsent(this.threadId, message);
    const others = this.#view.messages.filter((old) => old.id !== message.id);
    const isAgain = others.length < this.#view.messages.length;
    this.#begin(isAgain ? this.#view.messages : [...others, message]);
    await this.#follow(async (signal) => {
      await this.ensureThread();
      return startRun(this.threadId, { input: { messages: [message] } }, context, signal);
    });
  }

  /** Answer what the thread waits for, by the questions' ids; returns when the run is over. */
  async answer(answers: Answers, context: RunContext): Promise<void> {
    if (isBusy(this.#view)) return;
    this.#unsentAnswers = answers;
    this.#begin(this.#view.messages);
    const beginning = { command: { resume: answers } };
    await this.#follow((signal) => startRun(this.threadId, beginning, this.#context ?? context, signal));
  }

  /** Have an answer given once more, in place of the one with this id; returns when the run is over. */
  async regenerate(messageId: string, context: RunContext): Promise<void> {
    if (isBusy(this.#view)) return;
    this.#begin(this.#view.messages.slice(0, this.#view.messages.findLastIndex(isHuman) + 1));
    await this.#follow(async (signal) => {
      const repetition = await prepareRegenerate(this.threadId, messageId, signal);
      return startRun(this.threadId, repetition, context, signal);
    });
  }

  /** Read once more what could not be read, or send what did not arrive, else the last thing the person said. */
  async retry(context: RunContext): Promise<void> {
    if (this.#view.failure?.isOfReading) return this.open(); // to say something would start a run nobody asked for
    if (this.#unsentAnswers) return this.answer(this.#unsentAnswers, context);
    const last = this.#view.messages.findLast(isHuman);
    if (last) await this.send(last, this.#context ?? context);
    else await this.open();
  }

  /** Ask the server to stop the run; what it did so far stays. */
  async stop(): Promise<void> {
    this.#wantsStop = true;
    if (isBusy(this.#view)) this.#set({ ...this.#view, status: "stopping" });
    const { runId } = this.#view; // without one, the stop is sent as soon as the run has a name
    const { signal } = this.#closing;
    for (let losses = 0; runId && runId === this.#view.runId && isBusy(this.#view) && !signal.aborted; losses += 1) {
      try {
        await cancelRun(this.threadId, runId);
        return;
      } catch (error) {
        if (error instanceof ApiError && error.status === 409) return; // already over
        if (!isLoss(error)) return this.#fail(failureOf(error));
        await pause(losses, signal);
      }
    }
  }

  /** Stop listening; the run itself goes on. */
  close(): void {
    this.#closing.abort();
    this.#listeners.clear();
  }

  /** Read the newest part of the history; what the state has is shown without it too. */
  async #newestPage(): Promise<MessagePage | null> {
    this.#read = new Set();
    this.#before = null;
    return readMessages(this.threadId, null, this.#closing.signal).catch(() => null);
  }

  /** Return the view with a page of the history; what the state does not have of it was summed up. */
  #withPage(view: View, page: MessagePage | null): View {
    if (page === null) return { ...view, hasEarlier: Boolean(view.summary) };
    const messages = page.data.map((row) => row.content);
    const present = new Set(view.messages.map((message) => message.id));
    const summedUp = new Set([...view.summedUp, ...messages.filter((message) => !present.has(message.id)).map((message) => message.id ?? "")]);
    const merged = withPage(view.messages, messages, this.#read);
    this.#read = new Set([...this.#read, ...messages.map((message) => message.id ?? "")]);
    this.#before = page.next_before_seq;
    return { ...view, messages: merged, summedUp, hasEarlier: page.has_more };
  }

  #begin(messages: View["messages"]): void {
    this.#wantsStop = false;
    this.#gaps = 0;
    this.#set({ ...this.#view, messages, status: "starting", runId: null, lastEventId: null, failure: null, notice: null });
  }

  /** Show a message that was written before a reload and never arrived, with the way to send it. */
  #offerUnsent(): void {
    const message = recallUnsent(this.threadId);
    if (!message || isBusy(this.#view)) return;
    if (this.#view.messages.some((known) => known.id === message.id)) return forgetUnsent(this.threadId);
    this.#set({ ...this.#view, messages: [...this.#view.messages, message] });
    this.#fail({ name: UNSENT, message: "" });
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
    const isFirst = this.#view.runId === null;
    rememberRun(this.threadId, runId);
    forgetUnsent(this.threadId);
    this.#unsentAnswers = null;
    this.#shownRun = runId;
    this.#set({ ...this.#view, runId, status: this.#view.status === "stopping" ? "stopping" : "running" });
    if (this.#wantsStop && isFirst) void this.stop();
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
