/** Files in: upload with progress, limits, remove. */

import { ApiError, call, csrfToken, detailOf } from "./client.ts";
import { threadPath } from "./threads.ts";
import type { UploadAnswer, UploadedFile, UploadLimits } from "./types.ts";

export function readLimits(threadId: string): Promise<UploadLimits> {
  return call("GET", `${threadPath(threadId)}/uploads/limits`);
}

export function removeUpload(threadId: string, filename: string): Promise<unknown> {
  return call("DELETE", `${threadPath(threadId)}/uploads/${encodeURIComponent(filename)}`);
}

/** Upload one file; `onProgress` hears the part sent, from 0 to 1 (fetch cannot tell that, XHR can). */
export function uploadFile(
  threadId: string,
  file: File,
  onProgress: (part: number) => void,
  signal: AbortSignal,
): Promise<UploadedFile> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("files", file, file.name);
    request.open("POST", `${threadPath(threadId)}/uploads`);
    const token = csrfToken();
    if (token) request.setRequestHeader("X-CSRF-Token", token);
    request.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    request.onload = () => settle(request, resolve, reject);
    request.onerror = () => reject(new ApiError(0, "The server cannot be reached."));
    request.onabort = () => reject(new DOMException("upload removed", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(form);
  });
}

function settle(request: XMLHttpRequest, resolve: (file: UploadedFile) => void, reject: (error: Error) => void): void {
  const body = parse(request.responseText);
  if (request.status < 200 || request.status >= 300) {
    reject(new ApiError(request.status, detailOf(body) ?? `HTTP ${request.status}`));
    return;
  }
  const answer = body as UploadAnswer | null;
  const file = answer?.files?.[0];
  if (file) resolve(file);
  else reject(new ApiError(request.status, answer?.message ?? "The server did not keep the file."));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
