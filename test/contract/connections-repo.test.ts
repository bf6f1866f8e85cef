import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeConnectionRepo } from "./connections-repo.ts";

describeConnectionRepo("file", twoInstancesOfFile);
describeConnectionRepo("server", twoInstancesOfServer);
