/** How an answer says that it is a file to be saved, and under which name (RFC 6266, RFC 8187). */
export function toAttachment(fileName: string): string {
  return `attachment; filename*=UTF-8''${encodeFileName(fileName)}`;
}

function encodeFileName(name: string): string {
  return encodeURIComponent(name.toWellFormed()).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}
