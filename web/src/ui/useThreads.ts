/** The list of threads, kept fresh. */

import { useCallback, useEffect, useRef, useState } from "react";
import { deleteThread, PAGE_SIZE, renameThread, searchThreads } from "../api/threads.ts";
import { ApiError } from "../api/client.ts";
import type { Thread } from "../api/types.ts";

const REFRESH_MS = 10_000;

/** Why the list may not be what the server has. */
export interface Problem {
  readonly message: string;
  readonly isOffline: boolean;
}

export interface Threads {
  readonly list: readonly Thread[];
  readonly isLoaded: boolean;
  readonly hasMore: boolean;
  readonly problem: Problem | null;
  readonly refresh: () => void;
  readonly showMore: () => void;
  readonly rename: (threadId: string, title: string) => Promise<void>;
  readonly remove: (threadId: string) => Promise<boolean>;
}

export function useThreads(): Threads {
  const [list, setList] = useState<readonly Thread[]>([]);
  const [isLoaded, setIsLoaded] = useState(false);
  const [hasMore, setHasMore] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const pages = useRef(1);
  const latest = useRef(0);

  const refresh = useCallback(() => {
    latest.current += 1;
    const turn = latest.current;
    readPages(pages.current).then(
      (found) => {
        if (turn !== latest.current) return; // a newer answer is on its way
        setList((before) => (isSameList(before, found) ? before : found));
        setHasMore(found.length === pages.current * PAGE_SIZE);
        setIsLoaded(true);
        setProblem(null);
      },
      (error: unknown) => turn === latest.current && setProblem(problemOf(error)),
    );
  }, []);

  useEffect(() => {
    refresh();
    const onVisible = () => document.visibilityState === "visible" && refresh();
    const timer = setInterval(onVisible, REFRESH_MS);
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [refresh]);

  const showMore = useCallback(() => {
    pages.current += 1;
    refresh();
  }, [refresh]);

  const rename = useCallback(
    async (threadId: string, title: string) => {
      try {
        await renameThread(threadId, title);
        refresh();
      } catch (error) {
        setProblem(problemOf(error));
      }
    },
    [refresh],
  );

  const remove = useCallback(
    async (threadId: string) => {
      try {
        await deleteThread(threadId);
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 404)) {
          setProblem(problemOf(error));
          return false;
        }
      }
      setList((before) => before.filter((thread) => thread.thread_id !== threadId));
      refresh();
      return true;
    },
    [refresh],
  );

  return { list, isLoaded, hasMore, problem, refresh, showMore, rename, remove };
}

async function readPages(count: number): Promise<Thread[]> {
  const pages = await Promise.all(Array.from({ length: count }, (_, page) => searchThreads(page * PAGE_SIZE)));
  return pages.flat();
}

function isSameList(a: readonly Thread[], b: readonly Thread[]): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function problemOf(error: unknown): Problem {
  const message = error instanceof Error ? error.message : String(error);
  return { message, isOffline: error instanceof ApiError && error.status === 0 };
}
