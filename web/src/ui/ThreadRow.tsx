import { LoaderCircle, Pencil, Trash2 } from "lucide-react";
import { memo, useRef, useState } from "react";
import type { Thread } from "../api/types.ts";
import { useWords } from "../text/index.ts";
import { classes } from "./format.ts";
import { IconButton } from "./IconButton.tsx";
import { StatusMark } from "./StatusMark.tsx";
import { TitleEditor } from "./TitleEditor.tsx";

interface Props {
  readonly thread: Thread;
  readonly title: string | null;
  readonly isCurrent: boolean;
  /** The Tab key reaches this row; its buttons, and the other rows, have the arrow keys. */
  readonly isStop: boolean;
  readonly onOpen: (threadId: string) => void;
  readonly onRename: (threadId: string, title: string) => Promise<void>;
  readonly onDelete: (thread: Thread) => void;
}

/** One thread of the list. */
export const ThreadRow = memo(function ThreadRow({ thread, title, isCurrent, isStop, onOpen, onRename, onDelete }: Props) {
  const words = useWords();
  const [isEditing, setIsEditing] = useState(false);
  const takesFocus = useRef(false);
  const name = title || words.untitled;

  if (isEditing) {
    return (
      <TitleEditor
        title={title ?? ""}
        onKeyLeave={() => {
          takesFocus.current = true;
        }}
        onCancel={() => setIsEditing(false)}
        onSave={(next) => {
          setIsEditing(false);
          void onRename(thread.thread_id, next);
        }}
      />
    );
  }
  return (
    <div className={classes("group relative flex items-center rounded-lg", isCurrent ? "bg-accent-soft" : "hover:bg-line/60")}>
      <button
        ref={(button) => {
          if (takesFocus.current) button?.focus();
          if (button) takesFocus.current = false;
        }}
        type="button"
        aria-current={isCurrent ? "page" : undefined}
        tabIndex={isStop ? 0 : -1}
        title={name}
        className="flex min-w-0 flex-1 items-center gap-2 px-2 py-1.5 text-left text-sm"
        onClick={() => onOpen(thread.thread_id)}
      >
        <span className="min-w-0 flex-1 truncate">{name}</span>
        {(thread.status === "running" || thread.status === "busy") && (
          <LoaderCircle role="img" aria-label={words.working} size={14} className="shrink-0 animate-spin text-accent" />
        )}
        {thread.waits_for_answer && <StatusMark status="waiting" label={words.taskStatus.waiting} />}
      </button>
      <div
        role="group"
        aria-label={words.threadMenu(name)}
        className="flex shrink-0 focus-within:flex md:hidden md:group-hover:flex md:group-focus-within:flex"
      >
        <IconButton label={words.rename} tabIndex={-1} className="p-1.5" onClick={() => setIsEditing(true)}>
          <Pencil aria-hidden size={14} />
        </IconButton>
        <IconButton label={words.delete} tabIndex={-1} className="p-1.5" onClick={() => onDelete(thread)}>
          <Trash2 aria-hidden size={14} />
        </IconButton>
      </div>
    </div>
  );
});
