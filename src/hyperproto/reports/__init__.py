"""Reports: tables, figures, pages."""
