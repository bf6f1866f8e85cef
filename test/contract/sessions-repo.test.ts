import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeSessionRepo } from "./sessions-repo.ts";

describeSessionRepo("file", twoInstancesOfFile);
describeSessionRepo("server", twoInstancesOfServer);
