import { PanelLeftClose, SquarePen } from "lucide-react";
import { useEffect, useMemo, useState } from "react";
import type { Thread } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { DeerMark } from "./DeerMark.tsx";
import { DeleteDialog } from "./DeleteDialog.tsx";
import { classes } from "./format.ts";
import { IconButton } from "./IconButton.tsx";
import type { Choose, Preferences } from "./preferences.ts";
import { SettingsBar } from "./SettingsBar.tsx";
import { ThreadRow } from "./ThreadRow.tsx";
import { useRowKeys } from "./useRowKeys.ts";
import type { Threads } from "./useThreads.ts";

/** From this many threads on, a box helps to find one. */
const FIND_FROM = 8;

/** Where the list covers the thread, Escape leaves it. */
const WIDE = "(min-width: 768px)";

interface Props {
  readonly threads: Threads;
  readonly current: string;
  /** The open thread knows its title before the list does. */
  readonly currentTitle: string | null;
  readonly isOpen: boolean;
  readonly preferences: Preferences;
  readonly onChoose: Choose;
  readonly onNew: () => void;
  readonly onOpen: (threadId: string) => void;
  readonly onDeleted: (threadId: string) => void;
  readonly onClose: () => void;
}

/** The threads, newest first, and what is set for this device. */
export function Sidebar(props: Props) {
  const { threads, current, currentTitle, isOpen, preferences, onChoose, onNew, onOpen, onDeleted, onClose } = props;
  const words = useWords();
  const [wanted, setWanted] = useState("");
  const [doomed, setDoomed] = useState<Thread | null>(null);
  const shown = useMemo(() => matching(threads.list, wanted), [threads.list, wanted]);

  const rows = useRowKeys(useMemo(() => shown.map((thread) => thread.thread_id), [shown]), current);

  useEffect(() => {
    if (!isOpen || matchMedia(WIDE).matches) return undefined;
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && !event.defaultPrevented && onClose();
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [isOpen, onClose]);

  async function remove(thread: Thread): Promise<void> {
    setDoomed(null);
    if (await threads.remove(thread.thread_id)) onDeleted(thread.thread_id);
  }

  return (
    <>
      {isOpen && <div aria-hidden className="fixed inset-0 z-20 bg-black/40 md:hidden" onClick={onClose} />}
      <nav
        aria-label={words.threads}
        inert={!isOpen}
        className={classes(
          "fixed inset-y-0 left-0 z-20 flex w-72 flex-col border-r border-line bg-sunken transition-[margin,translate] duration-200 md:static",
          isOpen ? "translate-x-0" : "-translate-x-full md:-ml-72",
        )}
      >
        <div className="flex items-center gap-2 px-3 py-3">
          <DeerMark size={26} />
          <span className="flex-1 font-semibold tracking-tight">{words.appName}</span>
          <IconButton label={words.closeSidebar} onClick={onClose}>
            <PanelLeftClose aria-hidden size={18} />
          </IconButton>
        </div>
        <div className="space-y-2 px-3 pb-2">
          <button
            type="button"
            className="flex w-full items-center gap-2 rounded-lg border border-line bg-panel px-3 py-2 text-sm hover:border-accent"
            onClick={onNew}
          >
            <SquarePen aria-hidden size={16} className="text-accent" />
            {words.newChat}
          </button>
          {threads.list.length >= FIND_FROM && (
            <input
              type="search"
              value={wanted}
              aria-label={words.findThread}
              placeholder={words.findThread}
              className="w-full rounded-lg border border-line bg-panel px-3 py-1.5 text-sm"
              onChange={(event) => setWanted(event.target.value)}
            />
          )}
        </div>
        {threads.problem && (
          <p role="alert" className="mx-3 rounded-lg bg-bad-soft px-3 py-2 text-sm text-bad">
            {threads.problem.isOffline ? words.offlineError : threads.problem.message}
          </p>
        )}
        <ul className="min-h-0 flex-1 space-y-0.5 overflow-y-auto px-2 py-1" onFocus={rows.onFocus} onKeyDown={rows.onKeyDown}>
          {shown.map((thread) => (
            <li key={thread.thread_id} data-row={thread.thread_id}>
              <ThreadRow
                thread={thread}
                title={thread.values?.title || (thread.thread_id === current ? currentTitle : null)}
                isCurrent={thread.thread_id === current}
                isStop={thread.thread_id === rows.stop}
                onOpen={onOpen}
                onRename={threads.rename}
                onDelete={setDoomed}
              />
            </li>
          ))}
          {threads.isLoaded && shown.length === 0 && !threads.hasMore && (
            <li className="px-2 py-3 text-sm text-muted">{wanted ? words.nothingFound : words.noThreads}</li>
          )}
          {threads.hasMore && (
            <li>
              <button type="button" className="w-full rounded-lg px-2 py-2 text-left text-sm text-muted hover:text-ink" onClick={threads.showMore}>
                {words.showMore}
              </button>
            </li>
          )}
        </ul>
        <SettingsBar preferences={preferences} onChoose={onChoose} />
      </nav>
      {doomed && <DeleteDialog thread={doomed} onCancel={() => setDoomed(null)} onConfirm={() => void remove(doomed)} />}
    </>
  );
}

function matching(list: readonly Thread[], wanted: string): readonly Thread[] {
  const text = wanted.trim().toLowerCase();
  return text === "" ? list : list.filter((thread) => (thread.values?.title ?? "").toLowerCase().includes(text));
}
