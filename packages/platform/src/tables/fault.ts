/** What is wrong with a file or a statement, in words for whoever asked. */
export class TableFault extends Error {
  override readonly name = "TableFault";
  readonly param: string;

  constructor(message: string, param = "files") {
    super(message);
    this.param = param;
  }
}
