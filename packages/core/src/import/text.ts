/** Foreign text made fit for definitions: no control characters, no more than its place holds. */

/** One paragraph or several; trailing spaces and control characters other than line breaks go. */
export function tidy(text: string): string {
  return (
    text
      .toWellFormed()
      .replaceAll("\r\n", "\n")
      // oxlint-disable-next-line no-control-regex
      .replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, " ")
      .trim()
  );
}

/** At most so many characters, the last of them an ellipsis where something was cut. */
export function cutText(text: string, most: number): string {
  if (text.length <= most) return text;
  return `${text
    .slice(0, most - 1)
    .toWellFormed()
    .trimEnd()}…`;
}
