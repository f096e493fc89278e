/** Files on their way into a thread: each is uploaded as soon as it is chosen. */

import { useCallback, useEffect, useRef, useState } from "react";
import { readLimits, removeUpload, uploadFile } from "../api/uploads.ts";
import type { FileRef, UploadLimits } from "../api/types.ts";
import { useWords, type Words } from "../text/index.ts";
import { fileSize, reasonOf } from "./format.ts";
import { newId } from "./useRoute.ts";

export interface Attachment {
  readonly key: string;
  readonly name: string;
  readonly size: number;
  /** From 0 to 1. */
  readonly progress: number;
  readonly file: FileRef | null;
  readonly error: string | null;
}

export interface Attachments {
  readonly list: readonly Attachment[];
  readonly problem: string | null;
  readonly isUploading: boolean;
  readonly add: (files: Iterable<File>) => void;
  readonly remove: (key: string) => void;
  /** Empty the list without deleting the files: they have been sent. */
  readonly clear: () => void;
}

export function useAttachments(threadId: string, ensureThread: () => Promise<unknown>): Attachments {
  const words = useWords();
  const [list, setList] = useState<readonly Attachment[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const limits = useRef<UploadLimits | null>(null);
  const uploads = useRef(new Map<string, AbortController>());

  useEffect(() => {
    // Until the limits are known, or if they cannot be read, the server alone refuses what is too much.
    readLimits(threadId).then((found) => (limits.current = found), () => undefined);
    const running = uploads.current;
    return () => running.forEach((upload) => upload.abort());
  }, [threadId]);

  const change = useCallback((key: string, part: Partial<Attachment>) => {
    setList((before) => before.map((entry) => (entry.key === key ? { ...entry, ...part } : entry)));
  }, []);

  const upload = useCallback(
    async (key: string, file: File) => {
      const stopper = new AbortController();
      uploads.current.set(key, stopper);
      try {
        await ensureThread();
        const kept = await uploadFile(threadId, file, (progress) => change(key, { progress }), stopper.signal);
        const ref = { filename: kept.filename, size: Number(kept.size) || file.size, path: kept.virtual_path, status: "uploaded" };
        change(key, { progress: 1, file: ref });
      } catch (error) {
        if (!stopper.signal.aborted) change(key, { error: reasonOf(error, words) });
      } finally {
        uploads.current.delete(key);
      }
    },
    [threadId, ensureThread, change, words],
  );

  const add = useCallback(
    (chosen: Iterable<File>) => {
      const { accepted, refusal } = admit([...chosen], list, limits.current, words);
      setProblem(refusal);
      const fresh = accepted.map((file) => ({ file, key: newId() }));
      setList((before) => [
        ...before,
        ...fresh.map(({ file, key }) => ({ key, name: file.name, size: file.size, progress: 0, file: null, error: null })),
      ]);
      for (const { file, key } of fresh) void upload(key, file);
    },
    [upload, list, words],
  );

  const remove = useCallback(
    (key: string) => {
      uploads.current.get(key)?.abort();
      const entry = list.find((candidate) => candidate.key === key);
      setProblem(null);
      setList((before) => before.filter((candidate) => candidate.key !== key));
      if (entry?.file) void removeUpload(threadId, entry.file.filename).catch(() => undefined);
    },
    [threadId, list],
  );

  const clear = useCallback(() => {
    setList([]);
    setProblem(null);
  }, []);

  const isUploading = list.some((entry) => entry.file === null && entry.error === null);
  return { list, problem, isUploading, add, remove, clear };
}

/** Return the files that may come in, and what to say about the others. */
export function admit(
  chosen: readonly File[],
  present: readonly Attachment[],
  limits: UploadLimits | null,
  words: Words,
): { accepted: File[]; refusal: string | null } {
  const accepted: File[] = [];
  let refusal: string | null = null;
  let total = present.reduce((sum, entry) => sum + entry.size, 0);
  for (const file of chosen) {
    if (file.size === 0) refusal = words.emptyFile(file.name);
    else if (limits && present.length + accepted.length >= limits.max_files) refusal = words.tooManyFiles(limits.max_files);
    else if (limits && file.size > limits.max_file_size) refusal = words.fileTooBig(file.name, fileSize(limits.max_file_size));
    else if (limits && total + file.size > limits.max_total_size) refusal = words.filesTooBig(fileSize(limits.max_total_size));
    else {
      accepted.push(file);
      total += file.size;
    }
  }
  return { accepted, refusal };
}
