import { Files, PanelLeftOpen } from "lucide-react";
import { useWords } from "../text/index.ts";
import { IconButton } from "./IconButton.tsx";

interface Props {
  readonly title: string | null;
  /** Nothing below it is the heading of the view. */
  readonly hasHeading: boolean;
  readonly artifactCount: number;
  readonly isPanelOpen: boolean;
  readonly isSidebarOpen: boolean;
  readonly onPanel: () => void;
  readonly onSidebar: () => void;
}

/** The line above a thread: its title, and the ways to its files and to the other threads. */
export function ThreadHeader({ title, hasHeading, artifactCount, isPanelOpen, isSidebarOpen, onPanel, onSidebar }: Props) {
  const words = useWords();
  return (
    <header className="flex min-h-14 items-center gap-2 px-3">
      {!isSidebarOpen && (
        <IconButton label={words.openSidebar} onClick={onSidebar}>
          <PanelLeftOpen aria-hidden size={18} />
        </IconButton>
      )}
      <div className="min-w-0 flex-1">
        {hasHeading && <h1 className={title ? "truncate text-sm font-medium" : "sr-only"}>{title || words.untitled}</h1>}
      </div>
      {artifactCount > 0 && (
        <button
          type="button"
          aria-expanded={isPanelOpen}
          className="flex items-center gap-1.5 rounded-lg px-2.5 py-1.5 text-sm text-muted hover:bg-sunken hover:text-ink"
          onClick={onPanel}
        >
          <Files aria-hidden size={16} />
          {words.artifacts} {artifactCount}
        </button>
      )}
    </header>
  );
}
