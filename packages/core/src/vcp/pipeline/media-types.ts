/** What a picture, a sound or a film is by its first bytes, and how back ends call it. */

export type MediaClass = "image" | "audio" | "video";

type Signature = readonly [type: string, at: number, bytes: string];

const signatures: readonly Signature[] = [
  ["image/png", 0, "\x89PNG\r\n\x1a\n"],
  ["image/jpeg", 0, "\xff\xd8\xff"],
  ["image/gif", 0, "GIF8"],
  ["image/webp", 8, "WEBP"],
  ["image/bmp", 0, "BM"],
  ["image/tiff", 0, "II*\0"],
  ["image/avif", 4, "ftypavif"],
  ["image/heic", 4, "ftyphei"],
  ["audio/wav", 8, "WAVE"],
  ["audio/mpeg", 0, "ID3"],
  ["audio/mpeg", 0, "\xff\xfb"],
  ["audio/mpeg", 0, "\xff\xf3"],
  ["audio/flac", 0, "fLaC"],
  ["audio/ogg", 0, "OggS"],
  ["audio/mp4", 4, "ftypM4A"],
  ["video/webm", 0, "\x1aE\xdf\xa3"],
  ["video/x-msvideo", 8, "AVI "],
  ["video/mp4", 4, "ftyp"],
];

/** Undefined for bytes that are none that is known. */
export function sniffType(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.subarray(0, 16)).toString("latin1");
  return signatures.find(([, at, mark]) => head.startsWith(mark, at))?.[0];
}

/** Of a media type, as far as it names one. */
export function classOf(mediaType: string): MediaClass | undefined {
  const [kind] = mediaType.split("/");
  return kind === "image" || kind === "audio" || kind === "video" ? kind : undefined;
}

const formats = new Map([
  ["audio/mpeg", "mp3"],
  ["audio/mp3", "mp3"],
  ["audio/wav", "wav"],
  ["audio/wave", "wav"],
  ["audio/x-wav", "wav"],
  ["audio/vnd.wave", "wav"],
  ["audio/mp4", "m4a"],
  ["audio/x-m4a", "m4a"],
]);

/** As `input_audio.format` says it. */
export function audioFormat(mediaType: string): string {
  return formats.get(mediaType) ?? mediaType.slice("audio/".length).replace(/^x-/, "");
}
