/** Lines of an output that comes in pieces; what is no message is noise, which some servers make. */
export class Lines {
  #rest: string[] = [];

  feed(part: string): readonly string[] {
    const lines = part.split("\n");
    const last = lines.pop() ?? "";
    const [first] = lines;
    if (first === undefined) {
      this.#rest.push(last);
      return [];
    }
    lines[0] = this.#rest.join("") + first;
    this.#rest = last === "" ? [] : [last];
    return lines.filter((line) => line.trim() !== "");
  }
}
