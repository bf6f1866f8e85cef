/** Types of files by the ends of their names. */
import { extname } from "node:path";

const types: Readonly<Record<string, string>> = {
  css: "text/css",
  csv: "text/csv",
  gif: "image/gif",
  htm: "text/html",
  html: "text/html",
  ico: "image/x-icon",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  js: "text/javascript",
  json: "application/json",
  md: "text/markdown",
  mjs: "text/javascript",
  mp3: "audio/mpeg",
  mp4: "video/mp4",
  pdf: "application/pdf",
  png: "image/png",
  svg: "image/svg+xml",
  text: "text/plain",
  txt: "text/plain",
  wav: "audio/wav",
  webm: "video/webm",
  webp: "image/webp",
  woff2: "font/woff2",
  xml: "application/xml",
  zip: "application/zip",
};

export function mediaTypeOf(path: string): string {
  const end = path.startsWith(".") && path.lastIndexOf(".") === 0 ? path : extname(path);
  return types[end.slice(1).toLowerCase()] ?? "application/octet-stream";
}
