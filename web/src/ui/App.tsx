import { useCallback, useEffect, useState } from "react";
import { listModels } from "../api/models.ts";
import type { Model } from "../api/types.ts";
import { WordsContext, wordsIn } from "../text/index.ts";
import { ErrorBoundary } from "./ErrorBoundary.tsx";
import { usePreferences } from "./preferences.ts";
import { Sidebar } from "./Sidebar.tsx";
import { ThreadPane } from "./ThreadPane.tsx";
import { useRoute } from "./useRoute.ts";
import { useTheme } from "./useTheme.ts";
import { useThreads } from "./useThreads.ts";

const WIDE = "(min-width: 768px)";

/** The whole page. */
export function App() {
  const [preferences, choose] = usePreferences();
  const { route, openThread, openNew, keep } = useRoute();
  const threads = useThreads();
  const [models, setModels] = useState<readonly Model[]>([]);
  const [title, setTitle] = useState<string | null>(null);
  const [isSidebarOpen, setIsSidebarOpen] = useState(() => matchMedia(WIDE).matches);
  const words = wordsIn(preferences.language);
  useTheme(preferences.theme);

  useEffect(() => {
    document.documentElement.lang = preferences.language;
  }, [preferences.language]);

  // A server that comes back, or gets another config, may have other models.
  useEffect(() => {
    listModels().then(setModels, () => undefined);
  }, [route.threadId, threads.problem?.message]);

  const { refresh } = threads;
  const onChanged = useCallback(
    (next: string | null) => {
      setTitle(next);
      refresh();
    },
    [refresh],
  );

  const leaveSidebar = useCallback(() => {
    if (!matchMedia(WIDE).matches) setIsSidebarOpen(false);
  }, []);

  const startNew = useCallback(() => {
    openNew();
    leaveSidebar();
  }, [openNew, leaveSidebar]);

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || !event.shiftKey || event.key.toLowerCase() !== "o") return;
      event.preventDefault();
      startNew();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [startNew]);

  return (
    <WordsContext value={words}>
      <div className="flex h-dvh">
        <Sidebar
          threads={threads}
          current={route.threadId}
          currentTitle={title}
          isOpen={isSidebarOpen}
          preferences={preferences}
          onChoose={choose}
          onNew={startNew}
          onOpen={(threadId) => {
            openThread(threadId);
            leaveSidebar();
          }}
          onDeleted={(threadId) => threadId === route.threadId && openNew()}
          onClose={() => setIsSidebarOpen(false)}
        />
        <ErrorBoundary key={route.threadId} words={words}>
          <ThreadPane
            threadId={route.threadId}
            isNew={route.isNew}
            models={models}
            preferences={preferences}
            onChoose={choose}
            isSidebarOpen={isSidebarOpen}
            onSidebar={() => setIsSidebarOpen(true)}
            onCreated={keep}
            onChanged={onChanged}
          />
        </ErrorBoundary>
      </div>
    </WordsContext>
  );
}
