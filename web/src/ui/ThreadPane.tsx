import { useCallback, useEffect, useMemo, useState } from "react";
import type { ArtifactPlace } from "../api/artifacts.ts";
import type { Model } from "../api/types.ts";
import { itemsOf, type Item } from "../run/items.ts";
import { isFailureNote } from "../run/messages.ts";
import { useConversation } from "../run/useConversation.ts";
import { isBusy } from "../run/view.ts";
import { useWords } from "../text/index.ts";
import { ApprovalPanel } from "./ApprovalPanel.tsx";
import { ArtifactContext } from "./ArtifactContext.ts";
import { ArtifactPanel } from "./ArtifactPanel.tsx";
import { Composer } from "./Composer.tsx";
import { DropHint } from "./DropHint.tsx";
import { EmptyState } from "./EmptyState.tsx";
import { FailureNotice } from "./FailureNotice.tsx";
import { ItemList } from "./ItemList.tsx";
import { runContext, type Choose, type Preferences } from "./preferences.ts";
import { RunStatusLine } from "./RunStatusLine.tsx";
import { ThreadBody } from "./ThreadBody.tsx";
import { ThreadHeader } from "./ThreadHeader.tsx";
import { TodoList } from "./TodoList.tsx";
import { useSending } from "./useSending.ts";
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
  const [panel, setPanel] = useState<{ place: ArtifactPlace | null } | null>(null);
  const items = useMemo(() => itemsOf(view), [view]);
  const busy = isBusy(view);
  const isEmpty = isNew && items.length === 0 && !busy && view.failure === null;
  const scroll = useStickyScroll(isEmpty);
  const model = models.find((candidate) => candidate.name === preferences.model) ?? models[0] ?? null;
  const sending = useSending(conversation, isNew, runContext(preferences, model?.name ?? null), () => {
    scroll.toEnd();
    onCreated();
  });
  const artifacts = useMemo(() => ({ threadId, open: (place: ArtifactPlace) => setPanel({ place }) }), [threadId]);
  const loadEarlier = useCallback(() => void conversation.loadEarlier(), [conversation]);
  const closePanel = useCallback(() => setPanel(null), []);

  const isLost = view.status === "reconnecting";
  useEffect(() => onChanged(view.title), [onChanged, busy, isLost, view.title]);
  useEffect(() => {
    document.title = view.title ? `${view.title} · ${words.appName}` : words.appName;
  }, [view.title, words.appName]);

  return (
    <ArtifactContext value={artifacts}>
      <main className="relative flex min-w-0 flex-1 flex-col">
        <a href="#message" className="sr-only focus:not-sr-only focus:absolute focus:z-40 focus:bg-panel focus:p-2" onClick={focusMessage}>
          {words.skipToMessage}
        </a>
        <ThreadHeader
          title={view.title}
          hasHeading={!isEmpty}
          artifactCount={view.artifacts.length}
          isPanelOpen={panel !== null}
          isSidebarOpen={isSidebarOpen}
          onPanel={() => setPanel(panel ? null : { place: null })}
          onSidebar={onSidebar}
        />
        <ThreadBody scroll={scroll}>
          {isEmpty && <EmptyState isOffline={model?.name === "offline"} onExample={(task) => { sending.setDraft(task); focusMessage(); }} />}
          <ItemList items={items} hasEarlier={view.hasEarlier} onEarlier={loadEarlier} box={scroll.box} onReply={sending.reply} onRegenerate={busy ? null : sending.regenerate} />
          {!busy && view.waiting.length > 0 && <ApprovalPanel waiting={view.waiting} onAnswer={sending.answer} />}
          <RunStatusLine view={view} />
          {view.failure && <FailureNotice failure={view.failure} isExplained={isFailureNote(view.messages.at(-1))} onRetry={sending.retry} />}
        </ThreadBody>
        <div className="mx-auto w-full max-w-[50rem] px-4 pb-3">
          {view.todos.length > 0 && <TodoList todos={view.todos} />}
          <Composer
            isNew={isNew}
            sending={sending}
            isBusy={busy}
            isStopping={view.status === "stopping"}
            models={models}
            model={model}
            preferences={preferences}
            onChoose={onChoose}
            onStop={() => void conversation.stop()}
          />
        </div>
        <p role="status" className="sr-only">{busy ? words.working : isComplete(items.at(-1)) ? words.finished : ""}</p>
        <DropHint onFiles={sending.attachments.add} />
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

function isComplete(item: Item | undefined): boolean {
  return item?.kind === "answer" && item.ended === null && !isFailureNote(item.message);
}

function focusMessage(event?: { preventDefault: () => void }): void {
  event?.preventDefault();
  document.getElementById("message")?.focus();
}
