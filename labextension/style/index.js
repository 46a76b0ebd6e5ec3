import 'uplot/dist/uPlot.min.css';
import './base.css';
import './dashboard.css';
import './cells.css';
import './status.css';
import './holders.css';
import './diagnostics.css';
