/** Files out: where an artifact is and what kind of thing it shows. */

import { ApiError, send } from "./client.ts";
import { threadPath } from "./threads.ts";

export const MOUNT = "/mnt/user-data/";
export const PREVIEW_BYTES = 1024 * 1024;

export type ArtifactKind = "markdown" | "html" | "image" | "audio" | "video" | "text" | "binary";

/** A file and, where a link names one (`#L12`), the line to show. */
export interface ArtifactPlace {
  readonly path: string;
  readonly line: number | null;
}

const KINDS: Readonly<Record<string, ArtifactKind>> = {
  md: "markdown", markdown: "markdown", html: "html", htm: "html", xhtml: "html",
  png: "image", jpg: "image", jpeg: "image", gif: "image", webp: "image", svg: "image", avif: "image", ico: "image", bmp: "image",
  mp3: "audio", wav: "audio", ogg: "audio", m4a: "audio", flac: "audio", mp4: "video", webm: "video", mov: "video",
};

const BINARY = /^(pdf|docx?|xlsx?|pptx?|od[tsp]|zip|gz|tgz|xz|bz2|7z|rar|tar|skill|exe|bin|so|dll|wasm|parquet|sqlite|db|ttf|woff2?|pyc|jar|class|heic|tiff?)$/;

/** Return the place a link points at when it is a file of the thread, else null. */
export function artifactPlace(href: string): ArtifactPlace | null {
  const [before = "", fragment = ""] = href.split("#", 2);
  const path = decode(before.replace(/^sandbox:/, "").split("?", 1)[0] ?? "");
  if (!path.startsWith(MOUNT) || path.split("/").includes("..")) return null;
  const line = /^L(\d+)/.exec(fragment)?.[1];
  return { path, line: line ? Number(line) : null };
}

export function artifactUrl(threadId: string, path: string, download = false): string {
  const encoded = path.replace(/^\/+/, "").split("/").map(encodeURIComponent).join("/");
  return `${threadPath(threadId)}/artifacts/${encoded}${download ? "?download=true" : ""}`;
}

/** Return where all files that the agent made come in one ZIP. */
export function allArtifactsUrl(threadId: string): string {
  return `${threadPath(threadId)}/artifacts?zip=true`;
}

export function artifactKind(path: string): ArtifactKind {
  const extension = fileName(path).includes(".") ? (path.split(".").pop() ?? "").toLowerCase() : "";
  return KINDS[extension] ?? (BINARY.test(extension) ? "binary" : "text");
}

export function fileName(path: string): string {
  return path.split("/").filter(Boolean).pop() ?? path;
}

export interface ArtifactText {
  readonly text: string;
  readonly isWhole: boolean;
  readonly isBinary: boolean;
}

/** Read the first megabyte of a text artifact. */
export async function readArtifact(threadId: string, path: string, signal: AbortSignal): Promise<ArtifactText> {
  const response = await send(artifactUrl(threadId, path), {
    signal,
    cache: "no-store",
    headers: { Range: `bytes=0-${PREVIEW_BYTES - 1}` },
  }).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 416) return new Response(""); // an empty file has no first byte
    throw error;
  });
  const bytes = new Uint8Array(await response.arrayBuffer()).subarray(0, PREVIEW_BYTES);
  const total = Number(/\/(\d+)$/.exec(response.headers.get("Content-Range") ?? "")?.[1] ?? bytes.length);
  return {
    text: new TextDecoder().decode(bytes),
    isWhole: bytes.length >= total,
    isBinary: bytes.subarray(0, 8192).includes(0),
  };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
