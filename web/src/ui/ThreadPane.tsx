import { ArrowDown, Files, PanelLeftOpen } from "lucide-react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { ArtifactPlace } from "../api/artifacts.ts";
import type { HumanInputRequest, Message, Model } from "../api/types.ts";
import { itemsOf } from "../run/items.ts";
import { useConversation } from "../run/useConversation.ts";
import { isBusy } from "../run/view.ts";
import { useWords } from "../text/index.ts";
import { ArtifactContext } from "./ArtifactContext.ts";
import { ArtifactPanel } from "./ArtifactPanel.tsx";
import { Composer } from "./Composer.tsx";
import { EmptyState } from "./EmptyState.tsx";
import { FailureNotice } from "./FailureNotice.tsx";
import { IconButton } from "./IconButton.tsx";
import { ItemList } from "./ItemList.tsx";
import { answerMessage, humanMessage } from "./outgoing.ts";
import { runContext, type Choose, type Preferences } from "./preferences.ts";
import type { Reply } from "./QuestionCard.tsx";
import { RunStatusLine } from "./RunStatusLine.tsx";
import { TodoList } from "./TodoList.tsx";
import { useAttachments } from "./useAttachments.ts";
import { useDraft } from "./useDraft.ts";
import { useDropZone } from "./useDropZone.ts";
import { useStickyScroll } from "./useStickyScroll.ts";

interface Props {
  readonly threadId: string;
  readonly isNew: boolean;
  readonly models: readonly Model[];
  readonly preferences: Preferences;
  readonly onChoose: Choose;
  readonly isSidebarOpen: boolean;
  readonly onSidebar: () => void;
  /** The thread now exists on the server. */
  readonly onCreated: () => void;
  /** Something that the list of threads shows has changed. */
  readonly onChanged: (title: string | null) => void;
}

/** One thread: what happened, what is happening, and the box to say more. */
export function ThreadPane(props: Props) {
  const { threadId, isNew, models, preferences, onChoose, isSidebarOpen, onSidebar, onCreated, onChanged } = props;
  const words = useWords();
  const [conversation, view] = useConversation(threadId, isNew);
  const [draft, setDraft] = useDraft(threadId, isNew);
  const [isWaiting, setIsWaiting] = useState(false);
  const [panel, setPanel] = useState<{ place: ArtifactPlace | null } | null>(null);
  const attachments = useAttachments(threadId, useCallback(() => conversation.ensureThread(), [conversation]));
  const isDropping = useDropZone(attachments.add);
  const items = useMemo(() => itemsOf(view), [view]);
  const scroll = useStickyScroll();
  const busy = isBusy(view);

  const model = models.find((candidate) => candidate.name === preferences.model) ?? models[0] ?? null;
  const context = useRef(runContext(preferences, model?.name ?? null));
  context.current = runContext(preferences, model?.name ?? null);

  useEffect(() => onChanged(view.title), [onChanged, busy, view.title]);
  useEffect(() => {
    document.title = view.title ? `${view.title} · ${words.appName}` : words.appName;
  }, [view.title, words.appName]);

  const deliver = useCallback(
    (message: Message) => {
      scroll.toEnd();
      void conversation.send(message, context.current);
      onCreated();
    },
    [conversation, onCreated, scroll.toEnd],
  );
  const reply = useCallback((request: HumanInputRequest, given: Reply) => deliver(answerMessage(request, given)), [deliver]);
  const artifacts = useMemo(() => ({ threadId, open: (place: ArtifactPlace) => setPanel({ place }) }), [threadId]);
  const closePanel = useCallback(() => setPanel(null), []);

  const send = useCallback(() => {
    setIsWaiting(false);
    deliver(humanMessage(draft.trim(), attachments.list.flatMap((entry) => entry.file ?? [])));
    setDraft("");
    attachments.clear();
  }, [deliver, draft, setDraft, attachments]);

  useEffect(() => {
    if (!isWaiting || attachments.isUploading) return;
    if (attachments.list.some((entry) => entry.error)) setIsWaiting(false); // let the person see to it first
    else send();
  }, [isWaiting, attachments, send]);

  const isEmpty = items.length === 0 && !busy && view.failure === null && isNew;
  return (
    <ArtifactContext value={artifacts}>
      <main className="relative flex min-w-0 flex-1 flex-col">
        <a href="#message" className="sr-only focus:not-sr-only focus:absolute focus:z-40 focus:bg-panel focus:p-2" onClick={focusMessage}>
          {words.skipToMessage}
        </a>
        <header className="flex min-h-14 items-center gap-2 px-3">
          {!isSidebarOpen && (
            <IconButton label={words.openSidebar} onClick={onSidebar}>
              <PanelLeftOpen aria-hidden size={18} />
            </IconButton>
          )}
          <h2 className="min-w-0 flex-1 truncate text-sm font-medium">{view.title ?? ""}</h2>
          {view.artifacts.length > 0 && (
            <button
              type="button"
              aria-expanded={panel !== null}
              className="flex items-center gap-1.5 rounded-lg px-2.5 py-1.5 text-sm text-muted hover:bg-sunken hover:text-ink"
              onClick={() => setPanel(panel ? null : { place: null })}
            >
              <Files aria-hidden size={16} />
              {words.artifacts} {view.artifacts.length}
            </button>
          )}
        </header>
        <div ref={scroll.box} className="min-h-0 flex-1 overflow-y-auto px-4" onScroll={scroll.onScroll}>
          <div ref={scroll.content} className="mx-auto flex min-h-full w-full max-w-3xl flex-col gap-4 pt-2 pb-8">
            {isEmpty ? (
              <EmptyState isOffline={model?.name === "offline"} onExample={(task) => { setDraft(task); focusMessage(); }} />
            ) : (
              <>
                <ItemList items={items} onReply={reply} />
                <RunStatusLine view={view} />
                {view.failure && <FailureNotice failure={view.failure} onRetry={() => void conversation.retry(context.current)} />}
              </>
            )}
          </div>
        </div>
        <div className="px-4 pb-3">
          <div className="relative mx-auto w-full max-w-3xl">
            {scroll.isAway && (
              <IconButton label={words.jumpToEnd} className="absolute -top-11 left-1/2 -translate-x-1/2 border border-line bg-panel shadow" onClick={scroll.toEnd}>
                <ArrowDown aria-hidden size={16} />
              </IconButton>
            )}
            {view.todos.length > 0 && <TodoList todos={view.todos} />}
            <Composer
              isNew={isNew}
              draft={draft}
              onDraft={setDraft}
              attachments={attachments}
              isBusy={busy}
              isStopping={view.status === "stopping"}
              models={models}
              model={model}
              preferences={preferences}
              onChoose={onChoose}
              isWaiting={isWaiting}
              onSend={() => setIsWaiting(true)}
              onStop={() => void conversation.stop()}
            />
          </div>
        </div>
        <p role="status" className="sr-only">{busy ? words.working : items.at(-1)?.kind === "answer" ? words.finished : ""}</p>
        {isDropping && (
          <div className="pointer-events-none absolute inset-3 z-30 grid place-items-center rounded-2xl border-2 border-dashed border-accent bg-paper/85 text-accent">
            {words.dropHere}
          </div>
        )}
      </main>
      {panel && (
        <ArtifactPanel
          threadId={threadId}
          paths={view.artifacts}
          place={panel.place}
          version={busy}
          onList={() => setPanel({ place: null })}
          onClose={closePanel}
        />
      )}
    </ArtifactContext>
  );
}

function focusMessage(event?: { preventDefault: () => void }): void {
  event?.preventDefault();
  document.getElementById("message")?.focus();
}
